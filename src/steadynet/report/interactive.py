"""Charts as data for plotly.js, which draws them on the page."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from steadynet.errors import UserError
from steadynet.report.charts import Chart, Dash, Kind, Panel, Series

MARKERS = {  # plotly's name for each of matplotlib's markers
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
DASHES = {Dash.SOLID: "solid", Dash.DASHED: "dash", Dash.DOTTED: "dot"}


@lru_cache
def plotly_source() -> str:
    """The source of plotly.js, which becomes a part of the page."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UserError("the page needs plotly: pip install 'steadynet[report]'") from error
    return str(get_plotlyjs())


def chart_as_json(chart: Chart) -> dict[str, Any]:
    """A chart as the page's script reads it."""
    return {
        "name": chart.name,
        "title": chart.heading,  # the section that it stands in names the subject
        "note": chart.note,
        "panels": [_panel_as_json(panel) for panel in chart.panels],
    }


def _panel_as_json(panel: Panel) -> dict[str, Any]:
    """A panel: a title, and the traces and the layout of a plotly figure."""
    x_axis: dict[str, Any] = {"title": {"text": escaped(panel.x_label)}, "automargin": True}
    y_axis: dict[str, Any] = {"title": {"text": escaped(panel.y_label)}, "automargin": True}
    if panel.log_x:
        x_axis["type"] = "log"
    elif panel.kind is Kind.BARS:
        x_axis["type"] = "category"
    if panel.tick_names:
        x_axis |= {"tickvals": list(panel.tick_names), "ticktext": list(panel.tick_names.values())}
    low, high = panel.y_range
    if high is not None:
        y_axis["range"] = [low, high]
    elif low is not None:
        y_axis["rangemode"] = "tozero"
    traces, seen = [], set()
    for series in panel.series:  # the legend shows each name once, however many points have it
        traces.append(_trace(panel, series) | {"legendgroup": series.name, "showlegend": series.name not in seen})
        seen.add(series.name)
    return {"title": panel.title, "traces": traces, "layout": {"xaxis": x_axis, "yaxis": y_axis}}


def _trace(panel: Panel, series: Series) -> dict[str, Any]:
    """A series as a plotly trace."""
    style = series.style
    trace: dict[str, Any] = {"name": escaped(series.name), "x": [_text(x) for x in series.x], "y": series.y}
    if series.hover:
        trace |= {"hovertext": [escaped(text) for text in series.hover], "hoverinfo": "text+x+y"}
    if panel.kind is Kind.BARS:
        pattern = {"shape": PATTERNS.get(style.hatch, ""), "fillmode": "overlay", "fgcolor": "white", "size": 7}
        pattern |= {"solidity": 0.2, "fgopacity": 0.8}
        return trace | {"type": "bar", "marker": {"color": style.colour, "pattern": pattern}}
    symbol = MARKERS.get(style.marker, "circle") + ("-open" if series.is_open else "")
    line = {"color": style.colour, "dash": DASHES[series.dash], "width": 1.5 if series.faint else 2}
    marker = {"color": style.colour, "symbol": symbol, "size": 8}
    trace |= {"type": "scatter", "opacity": series.opacity, "line": line, "marker": marker}
    if panel.kind is Kind.STEPS:
        return trace | {"mode": "lines", "line": line | {"shape": "hv"}}
    if panel.kind is Kind.POINTS and len(series.x) == 1:
        labels = [escaped(text) for text in series.labels]
        more = {"mode": "markers+text", "text": labels, "textposition": "top center"}
        return trace | more | {"marker": marker | {"size": 12}}
    return trace | {"mode": "lines+markers" if style.marker else "lines"}


def _text(x: float | str) -> float | str:
    return escaped(x) if isinstance(x, str) else x


def escaped(text: str) -> str:
    """Escape the tags that plotly would read.

    >>> escaped("<b>R&D</b>")
    '&lt;b&gt;R&amp;D&lt;/b&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
