"""Charts as data for plotly.js, which draws them on the page."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from steadynet.errors import UserError
from steadynet.report.charts import NO_SHADE, SHADES, Chart, Dash, Kind, Panel, Series, ShadeScale
from steadynet.report.labels import Box, LabelledPoint, choose_places, place_labels

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
SHADED_SIZE, WIDE_PLOT = 13, (900, 430)  # pixels: a marker, and a plot over the whole width of the page
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
    x_axis, y_axis = _axes(panel)
    positions, traces, seen = _label_positions(panel), [], set()
    for number, series in enumerate(panel.series):
        trace = _trace(panel, series)
        if number in positions:
            trace["textposition"] = positions[number]
        in_legend = series.in_legend and series.name not in seen  # each name once, however many points have it
        traces.append(trace | {"legendgroup": series.name, "showlegend": in_legend})
        seen.add(series.name)
    if panel.shading:
        traces.append(_colour_bar(panel.shading))
    layout = {"xaxis": x_axis, "yaxis": y_axis, "annotations": _annotations(panel)}
    if panel.kind is Kind.STACKED:
        layout["barmode"] = "stack"
    return {"title": panel.title, "alt": _in_words(panel), "wide": panel.is_wide, "traces": traces, "layout": layout}


def _in_words(panel: Panel) -> str:
    """What a panel shows, for readers who cannot see it: the numbers of stacked bars, of others what is drawn."""
    if panel.kind is Kind.STACKED:
        bars = zip(*(series.hover for series in panel.series), strict=True)
        return f"{panel.title}: " + "; ".join(text for bar in bars for text in dict.fromkeys(bar))
    names = ", ".join(dict.fromkeys(series.name for series in panel.series if series.in_legend))
    over = f" over {panel.x_label}" if panel.x_label else ""
    return f"{panel.title}: {panel.y_label}{over}, for {names}. The tables have the numbers."


def _axes(panel: Panel) -> tuple[dict[str, Any], dict[str, Any]]:
    """The layout of the x axis and of the y axis."""
    x_axis: dict[str, Any] = {"title": {"text": escaped(panel.x_label)}, "automargin": True}
    y_axis: dict[str, Any] = {"title": {"text": escaped(panel.y_label)}, "automargin": True}
    if panel.log_x:
        x_axis["type"] = "log"
    elif panel.kind in (Kind.BARS, Kind.STACKED):
        x_axis["type"] = "category"
    for axis, names in ((x_axis, panel.tick_names), (y_axis, panel.y_tick_names)):
        if names:
            axis |= {
                "tickvals": list(names),
                "ticktext": list(names.values()),
                "zeroline": panel.kind is not Kind.SHADED,
            }
    for axis, (low, high) in ((x_axis, panel.x_range), (y_axis, panel.y_range)):
        if low is not None and high is not None:
            axis["range"] = [low, high]
        elif low is not None:
            axis["rangemode"] = "tozero"
    return x_axis, y_axis


def _trace(panel: Panel, series: Series) -> dict[str, Any]:
    """A series as a plotly trace."""
    style = series.style
    trace: dict[str, Any] = {"name": escaped(series.name), "x": [_text(x) for x in series.x], "y": series.y}
    if series.hover:
        trace |= {"hovertext": [escaped(text) for text in series.hover], "hoverinfo": "text+x+y"}
    if panel.kind in (Kind.BARS, Kind.STACKED):
        pattern = {"shape": PATTERNS.get(style.hatch, ""), "fillmode": "overlay", "fgcolor": "white", "size": 7}
        pattern |= {"solidity": 0.2, "fgopacity": 0.8}
        trace |= {"type": "bar", "marker": {"color": style.colour, "pattern": pattern}}
        return trace | (_labels_in_bars(series) if panel.kind is Kind.STACKED else {})
    if series.shades:
        return trace | {
            "type": "scatter",
            "mode": "markers",
            "hoverinfo": "text",
            "marker": _shaded_marker(panel, series),
        }
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


def _labels_in_bars(series: Series) -> dict[str, Any]:
    """The labels of stacked bars: in their middle, never tilted."""
    place = {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "hoverinfo": "text"}
    return {"text": [escaped(label) for label in series.labels], "textfont": {"size": 14}, **place}


def _shaded_marker(panel: Panel, series: Series) -> dict[str, Any]:
    """The markers of points whose colours are numbers."""
    outline = {"color": "#000000" if series.strong else "#9a9a9a", "width": 2 if series.strong else 1}
    colours = [panel.shading.colour(shade) if panel.shading else NO_SHADE for shade in series.shades]
    symbol = MARKERS.get(series.style.marker, "circle")
    return {"symbol": symbol, "size": SHADED_SIZE, "line": outline, "color": colours}


def _colour_bar(scale: ShadeScale) -> dict[str, Any]:
    """A trace without points, whose colour bar shows the scale of the shaded points."""
    colours = [[number / (len(SHADES) - 1), colour] for number, colour in enumerate(SHADES)]
    bar: dict[str, Any] = {"title": {"text": escaped(scale.label), "side": "right"}, "thickness": 12, "outlinewidth": 0}
    bar |= {
        "tickvals": [scale.position(tick) for tick in scale.ticks],
        "ticktext": [f"{tick:g}" for tick in scale.ticks],
    }
    marker = {"color": [0], "cmin": 0, "cmax": 1, "colorscale": colours, "showscale": True, "colorbar": bar}
    return {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "marker": marker, "showlegend": False}


def _annotations(panel: Panel) -> list[dict[str, Any]]:
    """The labels of shaded points. A label that stands away from its point has a line to it.

    As for other labels, the size of the plot on the page is known only roughly.
    """
    (left, right), (bottom, top) = panel.x_range, panel.y_range
    if panel.kind is not Kind.SHADED or left is None or right is None or bottom is None or top is None:
        return []
    across, up = WIDE_PLOT if panel.is_wide else (PLOT_WIDTH, PLOT_HEIGHT)
    points = [
        (float(x), y, label, series.strong)
        for series in sorted(panel.series, key=lambda series: not series.strong)
        for x, y, label in zip(series.x, series.y, series.labels, strict=False)
        if y is not None
    ]
    placed = []
    for x, y, label, strong in points:
        width = (8.5 if strong else 7.5) * len(label)
        placed.append(LabelledPoint(across * (x - left) / (right - left), up * (y - bottom) / (top - bottom), width))
    offsets = place_labels(placed, LABEL_HEIGHT, SHADED_SIZE / 2, Box(0, 0, across, up))
    return [
        _annotation(point, x + place.width / 2, y + LABEL_HEIGHT / 2)
        for point, place, (x, y) in zip(points, placed, offsets, strict=True)
    ]


def _annotation(point: tuple[float, float, str, bool], right: float, up: float) -> dict[str, Any]:
    """One label, whose middle is so many pixels to the right of its point and above it."""
    x, y, label, strong = point
    text = f"<b>{escaped(label)}</b>" if strong else escaped(label)
    place = {"x": x, "y": y, "ax": right, "ay": -up, "showarrow": True, "arrowhead": 0, "arrowwidth": 0.7}
    look = {"arrowcolor": "#b0b0b0", "standoff": SHADED_SIZE / 2, "borderpad": 0, "font": {"size": 12}}
    return {"text": text, **place, **look}


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
