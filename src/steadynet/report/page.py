"""One HTML page that holds everything: data, script, style and plotly.js; it opens from a file and asks no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from steadynet.report.claims import Claim, ClaimPart
from steadynet.report.gallery import Gallery
from steadynet.report.interactive import plotly_source
from steadynet.report.layout import Entry, Line, Table
from steadynet.report.metrics import Metric, radius
from steadynet.report.tables import counted, spread

ASSETS = resources.files("steadynet.report") / "assets"


def page(content: Mapping[str, Any], title: str) -> str:
    """The page of this content; only our two scripts may run in it, whatever the content says."""
    script, plotly = _asset("page.js"), plotly_source().replace("</script", "<\\/script").replace("\r\n", "\n")
    parts = {
        "title": html.escape(title),
        "policy": f"default-src 'none'; script-src {_digest(script)} {_digest(plotly)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; connect-src 'self'",
        "style": _asset("page.css"),
        "data": as_json(content),
        "script": script,
        "plotly": plotly,
    }
    text = _asset("template.html")
    pieces = []
    while "{{" in text:  # what is put in is never read for places again
        before, _, rest = text.partition("{{")
        name, _, text = rest.partition("}}")
        pieces += [before, parts[name.strip()]]
    return "".join([*pieces, text])


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def as_json(content: Any) -> str:
    r"""JSON that cannot end the element it stands in.

    >>> as_json(["</script>"])
    '["\\u003c/script>"]'
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def experiment_data(
    name: str, title: str, tables: Sequence[Table], charts: list[dict[str, Any]], notes: Sequence[str], gallery: Gallery
) -> dict[str, Any]:
    """One experiment, as the page's script reads it."""
    numbers = {run["name"]: number for number, run in enumerate(gallery.runs) if run["experiment"] == name}
    return {
        "name": name,
        "title": title,
        "facts": list(tables[0].facts.items()),
        "tables": [_table(table, numbers) for table in tables if table.lines],
        "charts": charts,
        "notes": list(notes),
    }


def _table(table: Table, numbers: Mapping[str, int]) -> dict[str, Any]:
    """A row a model, method and radius, a column a metric; what has no radius stands in every row."""
    metrics = list({line.metric.name: line.metric for line in table.lines}.values())
    lines = {(line.eps, line.metric.name): line for line in table.lines}
    rows = []
    for number, (model, method) in enumerate(table.columns):
        radii = list(dict.fromkeys(line.eps for line in table.lines if line.entries[number].is_there))
        for eps in [eps for eps in radii if eps is not None] or radii:
            cells = [
                _entry(what, lines.get((eps, what.name)) or lines.get((None, what.name)), number) for what in metrics
            ]
            runs = sorted(
                {numbers[run] for entry in _entries(table, number, eps) for run in entry.runs if run in numbers}
            )
            rows.append(
                {"model": model, "method": method, "eps": eps, "radius": radius(eps), "runs": runs, "cells": cells}
            )
    return {
        "name": table.name,
        "title": table.title,
        "paper": table.has_paper,
        "metrics": [{"label": what.label, "higher": what.higher_is_better} for what in metrics],
        "rows": rows,
    }


def _entries(table: Table, number: int, eps: float | None) -> list[Entry]:
    return [line.entries[number] for line in table.lines if line.eps == eps]


def _entry(what: Metric, line: Line | None, number: int) -> dict[str, Any] | None:
    if line is None or not line.entries[number].is_there:
        return None
    entry = line.entries[number]
    shown = {
        "value": entry.value,
        "text": what.written(entry.value) + spread(what, entry),
        "count": counted(entry),
        "best": entry.best,
        "note": entry.note,
        "paper": entry.paper,
        "paperText": what.written(entry.paper),
        "paperBest": entry.paper_best,
    }
    return {key: value for key, value in shown.items() if value not in (None, "", False)}


def claims_data(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """The claims, as the page's script reads them."""
    return [
        {
            "name": claim.name,
            "text": claim.text,
            "table": claim.table,
            "outcome": claim.outcome.name,
            "paperOutcome": claim.paper_outcome.name,
            "parts": [_part(part) for part in claim.parts],
        }
        for claim in claims
    ]


def _part(part: ClaimPart) -> dict[str, Any]:
    numbers = [
        f"{pair.label}: {part.metric.written(pair.one.value)}"
        + ("" if part.metric.is_delta else f" and {part.metric.written(pair.other.value)}")
        for pair in part.comparisons
    ]
    return {
        "metric": part.metric.label,
        "text": part.text,
        "outcome": part.outcome.name,
        "reason": part.reason,
        "comparisons": numbers,
    }
