"""One HTML page that holds everything: data, script, style and plotly.js. It opens from a file, without a network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from steadynet.report.content import TITLE, Report
from steadynet.report.gallery import MAX_PICTURES, gallery_of
from steadynet.report.headline import Headline
from steadynet.report.interactive import plotly_source
from steadynet.report.page_data import report_as_json

ASSETS = resources.files("steadynet.report") / "assets"
SCRIPTS = (
    "base.js",
    "tables.js",
    "charts.js",
    "gallery.js",
    "story.js",
    "page.js",
)  # they run in this order, as one script


def page_of(report: Report, max_pictures: int = MAX_PICTURES, live: str | None = None) -> str:
    """The page of a report.

    Args:
        report: What the page shows.
        max_pictures: How many counterexamples to draw at most.
        live: The version of a page that a server keeps up to date; None for a page that is written to a file.

    Returns:
        The text of the HTML file.

    Raises:
        UserError: If plotly is not installed.
    """
    gallery = gallery_of([section.experiment for section in report.sections], max_pictures)
    return _html(report_as_json(report, gallery, live), report.main_section.headline)


def _html(content: Mapping[str, Any], headline: Headline) -> str:
    """Fill the template. The page's policy lets only our own two scripts run, whatever the content contains."""
    script = "".join(_asset(name) for name in SCRIPTS)
    plotly = plotly_source().replace("</script", "<\\/script").replace("\r\n", "\n")
    parts = {
        "title": html.escape(TITLE),
        "headline": html.escape(headline.text),
        "meaning": html.escape(headline.meaning),
        "policy": f"default-src 'none'; script-src {_digest(script)} {_digest(plotly)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; connect-src 'self'",
        "style": _asset("page.css"),
        "data": as_json(content),
        "script": script,
        "plotly": plotly,
    }
    text = _asset("template.html")
    pieces = []
    while "{{" in text:  # only the template is searched for places, never what was put in
        before, _, rest = text.partition("{{")
        name, _, text = rest.partition("}}")
        pieces += [before, parts[name.strip()]]
    return "".join([*pieces, text])


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def as_json(content: Any) -> str:
    r"""Write JSON that cannot end the HTML element it stands in.

    >>> as_json(["</script>"])
    '["\\u003c/script>"]'
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
