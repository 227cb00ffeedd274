"""The content of the page as JSON. One function writes each record; the page's script reads what they write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from steadynet.report.claims import RULE, Claim, ClaimPart, Outcome
from steadynet.report.content import TITLE, Report, Section
from steadynet.report.examples import examples_of
from steadynet.report.gallery import Gallery
from steadynet.report.interactive import chart_as_json
from steadynet.report.layout import SMOKE_WARNING, Entry, Table
from steadynet.report.metrics import Metric, radius
from steadynet.report.tables import counted, spread
from steadynet.verification.properties import Verdict

JsonObject: TypeAlias = "dict[str, Any]"
VERDICTS = list(Verdict)


def report_as_json(report: Report, gallery: Gallery, live: str | None) -> JsonObject:
    """The whole page. ``live`` is the version that a page served by ``steadynet view`` compares with the server's."""
    return {
        "title": TITLE,
        "written": report.written,
        "rule": RULE,
        "outcomes": {outcome.name: outcome.value for outcome in Outcome},
        "main": report.main_section.experiment.name,
        "examples": [asdict(example) for example in examples_of(gallery, report.main_section.experiment)],
        "radii": {_as_key(eps): radius(eps) for eps in sorted({shown.eps for shown in gallery.properties})},
        "experiments": [_section_as_json(section, gallery) for section in report.sections],
        "gallery": _gallery_as_json(gallery),
        "live": live,
    }


def _as_key(eps: float) -> str:
    """A radius as JavaScript converts it to a string."""
    return repr(eps).removesuffix(".0")


def _section_as_json(section: Section, gallery: Gallery) -> JsonObject:
    experiment = section.experiment
    run_numbers = {run.name: number for number, run in enumerate(gallery.runs) if run.experiment == experiment.name}
    return {
        "name": experiment.name,
        "title": experiment.title,
        "headline": asdict(section.headline),
        "warning": SMOKE_WARNING if experiment.is_smoke else "",
        "facts": list(experiment.facts.items()),
        "tables": [_table_as_json(table, run_numbers) for table in section.tables if table.lines],
        "verdicts": chart_as_json(section.verdict_chart) if section.verdict_chart else None,
        "charts": [chart_as_json(chart) for chart in section.more_charts],
        "notes": section.notes,
        "claims": [_claim_as_json(claim) for claim in section.claims],
    }


def _table_as_json(table: Table, run_numbers: Mapping[str, int]) -> JsonObject:
    """A table with one row per model, method and radius, and one column per metric.

    A metric without a radius, such as test accuracy, stands in every row of its network.
    """
    distinct = {line.metric.name: line.metric for line in table.lines}.values()
    metrics = sorted(distinct, key=lambda metric: not metric.is_quality)  # what a network cost comes last
    rows = []
    for model, method in table.columns:
        found = {(line.eps, line.metric.name): table.entries(line)[model, method] for line in table.lines}
        radii = list(dict.fromkeys(eps for (eps, _), entry in found.items() if entry.is_there))
        for eps in [eps for eps in radii if eps is not None] or radii:
            entries = [found.get((eps, metric.name)) or found.get((None, metric.name)) for metric in metrics]
            runs = {run for (its_eps, _), entry in found.items() if its_eps == eps for run in entry.runs}
            rows.append(
                {
                    "model": model,
                    "method": method,
                    "eps": eps,
                    "radius": radius(eps),
                    "runs": sorted(run_numbers[run] for run in runs if run in run_numbers),
                    "entries": [_entry_as_json(metric, entry) for metric, entry in zip(metrics, entries, strict=True)],
                }
            )
    return {
        "name": table.name,
        "title": table.title,
        "paper": table.has_paper,
        "warning": table.warning,
        "differences": any(metric.is_delta for metric in metrics),
        "metrics": [_metric_as_json(metric) for metric in metrics],
        "rows": rows,
    }


def _metric_as_json(metric: Metric) -> JsonObject:
    return {
        "label": metric.words,
        "name": metric.label,
        "meaning": metric.meaning,
        "higher": metric.higher_is_better,
    }


def _entry_as_json(metric: Metric, entry: Entry | None) -> JsonObject | None:
    """An entry of a table, without what it does not have; None if nobody measured it."""
    if entry is None or not entry.is_there:
        return None
    shown = {
        "value": entry.value,
        "text": metric.written(entry.value) + spread(metric, entry),
        "count": counted(entry),
        "best": entry.best,
        "note": entry.note,
        "paper": entry.paper,
        "paperText": metric.written(entry.paper),
        "paperBest": entry.paper_best,
    }
    return {key: value for key, value in shown.items() if value is not None and value is not False and value != ""}


def _claim_as_json(claim: Claim) -> JsonObject:
    return {
        "name": claim.name,
        "text": claim.text,
        "table": claim.table,
        "outcome": claim.outcome.name,
        "paperOutcome": claim.paper_outcome.name,
        "parts": [_part_as_json(part) for part in claim.parts],
    }


def _part_as_json(part: ClaimPart) -> JsonObject:
    numbers = [
        f"{pair.label}: {part.metric.written(pair.one.value)}"
        + ("" if part.metric.is_delta else f" and {part.metric.written(pair.other.value)}")
        for pair in part.comparisons
    ]
    return {
        "metric": part.metric.words,
        "text": part.text,
        "outcome": part.outcome.name,
        "reason": part.reason,
        "comparisons": numbers,
    }


def _gallery_as_json(gallery: Gallery) -> JsonObject:
    """The gallery. Its properties are stored as columns, which keeps a page with thousands of them small."""
    shown = gallery.properties
    guarantees = list(dict.fromkeys(entry.guarantee for entry in shown))
    return {
        "columns": {
            "run": [entry.run for entry in shown],
            "eps": [entry.eps for entry in shown],
            "index": [entry.index for entry in shown],
            "label": [entry.label for entry in shown],
            "verdict": [VERDICTS.index(entry.verdict) for entry in shown],
            "seconds": [entry.seconds for entry in shown],
            "margin": [_short(entry.margin) for entry in shown],
            "stable": [_short(entry.stable_share) for entry in shown],
            "decidedBy": [entry.decided_by for entry in shown],
            "reason": [entry.reason for entry in shown],
            "guarantee": [guarantees.index(entry.guarantee) for entry in shown],
            "proof": [entry.proof for entry in shown],
            "picture": [entry.picture for entry in shown],
            "difference": [entry.difference for entry in shown],
            "predicted": [entry.predicted for entry in shown],
        },
        "pictures": gallery.pictures,
        "shapes": [asdict(shape) for shape in gallery.shapes],
        "runs": [asdict(run) for run in gallery.runs],
        "verdicts": [verdict.value for verdict in VERDICTS],
        "guarantees": guarantees,
        "notes": gallery.notes,
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
