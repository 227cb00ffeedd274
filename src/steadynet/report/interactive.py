"""Charts for plotly.js, as plain data: the page draws them when they come into sight."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from steadynet.errors import UserError
from steadynet.report.charts import Chart, Panel, Series

MARKERS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
    "<": "triangle-left",
    ">": "triangle-right",
}
PATTERNS = {"//": "/", "\\\\": "\\", "xx": "x", "..": ".", "++": "+", "--": "-", "oo": ".", "**": "|"}


@lru_cache
def plotly_source() -> str:
    """The whole of plotly.js, to be put into the page."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UserError("the page needs an extra: pip install 'steadynet[report]'") from error
    return str(get_plotlyjs())


def as_data(charts: Iterable[Chart]) -> list[dict[str, Any]]:
    """Charts as the page's script reads them."""
    return [
        {
            "name": chart.name,
            "title": chart.title.partition(": ")[0],  # the page's own heading says the rest
            "note": chart.note,
            "panels": [_panel(panel) for panel in chart.panels],
        }
        for chart in charts
    ]


def _panel(panel: Panel) -> dict[str, Any]:
    axis_x: dict[str, Any] = {"title": {"text": escaped(panel.x_label)}, "automargin": True}
    axis_y: dict[str, Any] = {"title": {"text": escaped(panel.y_label)}, "automargin": True}
    if panel.log_x:
        axis_x["type"] = "log"
    if panel.log_y:
        axis_y["type"] = "log"
    if panel.percent:
        axis_y["range"] = [0 if panel.kind == "bars" else -3, 103]
    elif panel.kind in ("bars", "steps"):
        axis_y["rangemode"] = "tozero"
    if panel.kind == "bars":
        axis_x["type"] = "category"
    if panel.kind == "points":
        heights = [y for series in panel.series for y in series.y if y is not None]
        middle, half = (max(heights) + min(heights)) / 2, max(5.0, 0.65 * (max(heights) - min(heights)))
        axis_y["range"] = [middle - half, middle + half]
    if panel.names:
        axis_x |= {"tickvals": list(panel.names), "ticktext": list(panel.names.values())}
    traces = [_trace(panel, series) for series in panel.series]
    for number, trace in enumerate(traces):  # one entry of the legend for all points of a method
        trace["legendgroup"] = trace["name"]
        trace["showlegend"] = trace["name"] not in [before["name"] for before in traces[:number]]
    return {
        "title": panel.title,
        "traces": traces,
        "layout": {"xaxis": axis_x, "yaxis": axis_y},
    }


def _trace(panel: Panel, series: Series) -> dict[str, Any]:
    look = series.style
    trace: dict[str, Any] = {"name": escaped(series.name), "x": [_text(x) for x in series.x], "y": series.y}
    if series.hover:
        trace |= {"hovertext": [escaped(text) for text in series.hover], "hoverinfo": "text+x+y"}
    if panel.kind == "bars":
        pattern = {"shape": PATTERNS.get(look.hatch, ""), "fillmode": "overlay", "fgcolor": "white", "size": 7}
        pattern |= {"solidity": 0.2, "fgopacity": 0.8}
        return trace | {"type": "bar", "marker": {"color": look.colour, "pattern": pattern}}
    dash = "dot" if series.faint else "dash" if look.dashed else "solid"
    trace["type"], trace["opacity"] = "scatter", 0.65 if series.faint else 1.0
    trace["line"] = {"color": look.colour, "dash": dash, "width": 1.5 if series.faint else 2}
    trace["marker"] = {"color": look.colour, "symbol": MARKERS.get(look.marker, "circle"), "size": 8}
    if series.faint or look.dashed:
        trace["marker"]["symbol"] += "-open"
    if panel.kind == "steps":
        return trace | {"mode": "lines", "line": trace["line"] | {"shape": "hv"}}
    if panel.kind == "points" and len(series.x) == 1:
        trace["marker"]["size"] = 12
        labels = [escaped(text) for text in series.labels]
        return trace | {"mode": "markers+text", "text": labels, "textposition": "top center"}
    return trace | {"mode": "lines" if not look.marker else "lines+markers"}


def _text(x: float | str) -> float | str:
    return escaped(x) if isinstance(x, str) else x


def escaped(text: str) -> str:
    """Text that plotly, which reads a few tags, shows as it is.

    >>> escaped("<b>R&D</b>")
    '&lt;b&gt;R&amp;D&lt;/b&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
