"""Charts as data for plotly.js, which draws them on the page."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from steadynet.errors import UserError
from steadynet.report.charts import Chart, Dash, Kind, Panel, Series
from steadynet.report.labels import Box, choose_places

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
LABEL_POSITIONS = [  # where a label can be, the preferred place first
    (vertical, horizontal)
    for horizontal in ("center", "right", "left")
    for vertical in ("top", "bottom", "middle")
    if (vertical, horizontal) != ("middle", "center")
]
POINT_SIZE, LABEL_HEIGHT, PLOT_WIDTH, PLOT_HEIGHT = 12, 14, 320, 190  # pixels
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
        x_axis |= {"type": "log", "dtick": "D2"}  # ticks at 1, 2 and 5
    elif panel.kind is Kind.BARS:
        x_axis["type"] = "category"
    if panel.tick_names:
        x_axis |= {"tickvals": list(panel.tick_names), "ticktext": list(panel.tick_names.values())}
    for axis, (low, high) in ((x_axis, panel.x_range), (y_axis, panel.y_range)):
        if low is not None and high is not None:
            axis["range"] = [low, high]
        elif low is not None:
            axis["rangemode"] = "tozero"
    positions, traces, seen = _label_positions(panel), [], set()
    for number, series in enumerate(panel.series):
        trace = _trace(panel, series)
        if number in positions:
            trace["textposition"] = positions[number]
        in_legend = series.in_legend and series.name not in seen  # each name once, however many points have it
        traces.append(trace | {"legendgroup": series.name, "showlegend": in_legend})
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
        labels = {"mode": "markers+text", "text": [escaped(text) for text in series.labels], "cliponaxis": False}
        return trace | labels | {"marker": marker | {"size": POINT_SIZE}}
    return trace | {"mode": "lines+markers" if style.marker else "lines"}


def _label_positions(panel: Panel) -> dict[int, str]:
    """Where plotly writes the label of each series that is one labelled point, by the number of the series.

    The size of a plot on the page is known only roughly, which is enough to keep labels apart.
    """
    numbers = [number for number, series in enumerate(panel.series) if len(series.x) == 1 and series.labels]
    (left, right), (bottom, top) = panel.x_range, panel.y_range
    if not numbers or left is None or right is None or bottom is None or top is None:
        return {}
    markers, places = [], []
    for number in numbers:
        series = panel.series[number]
        across = PLOT_WIDTH * (float(series.x[0]) - left) / (right - left)
        up = PLOT_HEIGHT * ((series.y[0] or 0.0) - bottom) / (top - bottom)
        width, half = 7.5 * len(series.labels[0]), POINT_SIZE / 2
        markers.append(Box(across - half, up - half, 2 * half, 2 * half))
        heights = {"top": up + half + 1, "middle": up - LABEL_HEIGHT / 2, "bottom": up - half - 1 - LABEL_HEIGHT}
        lefts = {"center": across - width / 2, "right": across + half + 1, "left": across - half - 1 - width}
        places.append([Box(lefts[h], heights[v], width, LABEL_HEIGHT) for v, h in LABEL_POSITIONS])
    chosen = choose_places(places, markers)
    return {number: " ".join(LABEL_POSITIONS[place]) for number, place in zip(numbers, chosen, strict=True)}


def _text(x: float | str) -> float | str:
    return escaped(x) if isinstance(x, str) else x


def escaped(text: str) -> str:
    """Escape the tags that plotly would read.

    >>> escaped("<b>R&D</b>")
    '&lt;b&gt;R&amp;D&lt;/b&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
