"""Draw charts for print with matplotlib."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath

from steadynet.report.charts import NO_SHADE, SHADES, Chart, Dash, Kind, Panel, Series
from steadynet.report.labels import Box, LabelledPoint, choose_places, place_labels

Handles = dict[str, Artist]  # what the legend shows, by the name of the series

LABEL_SIZE = MARKER_SIZE = 8  # points
LABEL_HEIGHTS = (4, -10, 14, -20)  # points above the labelled point, in the order in which they are tried
SHADED_SIZE = 9  # points, the size of a marker whose colour is a number
SHADE_MAP = LinearSegmentedColormap.from_list("steadynet", SHADES)
LINE_STYLES = {Dash.SOLID: "-", Dash.DASHED: "--", Dash.DOTTED: ":"}
SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "hatch.linewidth": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "steadynet",  # drawing the same chart twice gives the same file
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def draw(chart: Chart) -> Figure:
    """Draw a chart as a matplotlib figure, with one legend below all panels."""
    across = min(chart.across, len(chart.panels))
    down = -(-len(chart.panels) // across)
    widest, highest = max(map(_width, chart.panels)), max(map(_height, chart.panels))
    figure = Figure(figsize=(max(across * widest, 4.5), highest * down + 0.9))
    axes = figure.subplots(down, across, squeeze=False).flatten()
    handles: Handles = {}
    for panel, axis in zip(chart.panels, axes, strict=False):
        drawn = _draw_panel(panel, axis)
        handles |= {series.name: drawn[series.name] for series in panel.series if series.in_legend}
    if shading := next((panel.shading for panel in chart.panels if panel.shading), None):
        colours = ScalarMappable(LogNorm(shading.low, shading.high), SHADE_MAP)
        bar = figure.colorbar(colours, ax=list(axes), label=_plain(shading.label), fraction=0.04, pad=0.02, aspect=40)
        bar.set_ticks(shading.ticks, labels=[f"{tick:g}" for tick in shading.ticks])
        bar.minorticks_off()
    for axis in axes[len(chart.panels) :]:
        axis.set_axis_off()
    figure.suptitle(_plain(chart.title), fontsize=11, fontweight="bold", wrap=True)
    columns = max(1, min(len(handles), int(figure.get_figwidth() // 1.6)))
    names = [_plain(name) for name in handles]
    figure.legend(list(handles.values()), names, loc="outside lower center", ncols=columns, fontsize=9)
    if any(series.labels for panel in chart.panels for series in panel.series if panel.kind is not Kind.STACKED):
        figure.draw_without_rendering()  # this lays out the axes; only then the labels can be placed
        for panel, axis in zip(chart.panels, axes, strict=False):
            _write_labels(panel, axis)
    return figure


def _width(panel: Panel) -> float:
    """The width in inches. Bars need room for their names, and points for their labels."""
    names = max((len(series.x) for series in panel.series), default=0)
    if panel.kind is Kind.SHADED:
        return min(3.6 + 0.25 * max(_labels(panel) - 4, 0), 8.0)
    if panel.kind is Kind.STACKED:
        return min(max(2.6, 0.45 * names + 1.2), 9.0)
    return 3.2 if panel.kind is not Kind.BARS else min(max(3.2, 0.14 * names * len(panel.series) + 1.2), 7.0)


def _height(panel: Panel) -> float:
    """The height in inches."""
    return min(2.9 + 0.13 * max(_labels(panel) - 4, 0), 5.2) if panel.kind is Kind.SHADED else 2.9


def _labels(panel: Panel) -> int:
    return sum(len(series.labels) for series in panel.series)


def _plain(text: str) -> str:
    """Escape what matplotlib would read as mathematics."""
    return text.replace("$", r"\$")


def _draw_panel(panel: Panel, axis: Axes) -> Handles:
    """Draw one panel and return what a legend can show of it."""
    draws = {Kind.BARS: _draw_bars, Kind.STACKED: _draw_stacked}
    handles = draws.get(panel.kind, _draw_lines)(panel, axis)
    handles |= {series.name: _draw_shaded(panel, series, axis) for series in panel.series if series.shades}
    axis.set_title(_plain(panel.title))
    axis.set_xlabel(_plain(panel.x_label))
    axis.set_ylabel(_plain(panel.y_label))
    if panel.log_x:
        axis.set_xscale("log")
        axis.minorticks_off()
    axis.set_xlim(*panel.x_range)
    axis.set_ylim(*panel.y_range)
    if panel.tick_names:
        axis.set_xticks(list(panel.tick_names), list(panel.tick_names.values()))
    if panel.y_tick_names:
        axis.set_yticks(list(panel.y_tick_names), list(panel.y_tick_names.values()))
    return handles


def _draw_shaded(panel: Panel, series: Series, axis: Axes) -> Artist:
    """Draw points whose colours are numbers, and return what a legend shows of them."""
    colours = [panel.shading.colour(shade) if panel.shading else NO_SHADE for shade in series.shades]
    outline: dict[str, Any] = {"edgecolors": "black" if series.strong else "#9A9A9A"}
    outline |= {"linewidths": 1.6 if series.strong else 0.8}
    places = [float(x) for x in series.x], [float("nan") if y is None else y for y in series.y]
    axis.scatter(*places, s=SHADED_SIZE**2, c=colours, zorder=4 if series.strong else 3, **outline)
    look: dict[str, Any] = {"markerfacecolor": NO_SHADE, "markeredgecolor": outline["edgecolors"]}
    look |= {"markeredgewidth": outline["linewidths"], "markersize": SHADED_SIZE}
    return Line2D([], [], linestyle="none", marker=series.style.marker, **look)


def _draw_bars(panel: Panel, axis: Axes) -> Handles:
    names = list(dict.fromkeys(str(name) for series in panel.series for name in series.x))
    width = 0.84 / max(len(panel.series), 1)
    handles: Handles = {}
    for number, series in enumerate(panel.series):
        values = {str(name): value for name, value in zip(series.x, series.y, strict=True) if value is not None}
        places = [names.index(name) + (number - (len(panel.series) - 1) / 2) * width for name in values]
        fill: dict[str, Any] = {"hatch": series.style.hatch, "edgecolor": "white", "linewidth": 0.4}
        axis.bar(places, list(values.values()), width * 0.94, color=series.style.colour, **fill)
        handles[series.name] = Patch(facecolor=series.style.colour, **fill)
    _name_bars(names, axis)
    return handles


def _draw_stacked(panel: Panel, axis: Axes) -> Handles:
    """Draw bars on top of each other, with their labels in them."""
    names = [str(name) for name in panel.series[0].x]
    ground = [0.0] * len(names)
    handles: Handles = {}
    for series in panel.series:
        heights = [value or 0.0 for value in series.y]
        fill: dict[str, Any] = {"hatch": series.style.hatch, "edgecolor": "white", "linewidth": 0.4}
        bars = axis.bar(range(len(names)), heights, 0.7, bottom=ground, color=series.style.colour, **fill)
        box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        for text in axis.bar_label(bars, series.labels, label_type="center", fontsize=LABEL_SIZE):
            text.set_bbox(box if text.get_text() else None)
        ground = [low + height for low, height in zip(ground, heights, strict=True)]
        handles[series.name] = Patch(facecolor=series.style.colour, **fill)
    _name_bars(names, axis)
    return handles


def _name_bars(names: list[str], axis: Axes) -> None:
    tilted = sum(len(name) for name in names) > 34
    axis.set_xticks(
        range(len(names)),
        [_plain(name) for name in names],
        rotation=35 if tilted else 0,
        ha="right" if tilted else "center",
    )
    axis.grid(False, axis="x")


def _draw_lines(panel: Panel, axis: Axes) -> Handles:
    handles: Handles = {}
    for series in panel.series:
        if series.shades:
            continue
        style = series.style
        is_one_point = panel.kind is Kind.POINTS and len(series.x) == 1
        (handle,) = axis.plot(
            [float(x) for x in series.x],
            [float("nan") if value is None else value for value in series.y],
            color=style.colour,
            marker=style.marker or None,
            markevery=(1, max(1, len(series.x) // 8)) if panel.kind is Kind.STEPS else None,  # not at the start
            markersize=MARKER_SIZE if panel.kind is Kind.POINTS else 5,
            markerfacecolor="white" if series.is_open else style.colour,
            linestyle="none" if is_one_point else LINE_STYLES[series.dash],
            linewidth=1.1 if series.faint else 1.7,
            alpha=series.opacity,
            drawstyle="steps-post" if panel.kind is Kind.STEPS else "default",
        )
        handles[series.name] = handle
    return handles


def _write_labels(panel: Panel, axis: Axes) -> None:
    """Write each label beside its point, where it covers no marker and no other label."""
    if panel.kind is Kind.SHADED:
        _write_crowded_labels(panel, axis)
        return
    points = [
        (float(x), y, label)
        for series in panel.series
        for x, y, label in zip(series.x, series.y, series.labels, strict=False)
        if y is not None
    ]
    offsets = [[(right, up) for up in LABEL_HEIGHTS for right in (6, -6 - _label_width(label))] for *_, label in points]
    middles, half = [_in_points(axis, x, y) for x, y, _ in points], MARKER_SIZE / 2
    places = [
        [Box(across + right, above + up, _label_width(label), LABEL_SIZE + 1) for right, up in choices]
        for (*_, label), choices, (across, above) in zip(points, offsets, middles, strict=True)
    ]
    markers = [Box(across - half, up - half, MARKER_SIZE, MARKER_SIZE) for across, up in middles]
    for (x, y, label), choices, number in zip(points, offsets, choose_places(places, markers), strict=True):
        axis.annotate(_plain(label), (x, y), xytext=choices[number], textcoords="offset points", fontsize=LABEL_SIZE)


def _write_crowded_labels(panel: Panel, axis: Axes) -> None:
    """Write labels around many points. A label that stands away from its point has a line to it."""
    ordered = sorted(panel.series, key=lambda series: not series.strong)
    points = [
        (float(x), y, label, series.strong)
        for series in ordered
        for x, y, label in zip(series.x, series.y, series.labels, strict=False)
        if y is not None
    ]
    placed = [LabelledPoint(*_in_points(axis, x, y), _measured_width(label, bold)) for x, y, label, bold in points]
    left, bottom, right, top = (72 / axis.figure.dpi * edge for edge in axis.get_window_extent().extents)
    lines = [box for series in panel.series if not series.shades for box in _boxes_along(series, axis)]
    area, half = Box(left, bottom, right - left, top - bottom), SHADED_SIZE / 2
    offsets = place_labels(placed, LABEL_SIZE + 1, half, area, lines)
    for (x, y, label, strong), offset in zip(points, offsets, strict=True):
        axis.annotate(
            _plain(label),
            (x, y),
            xytext=offset,
            textcoords="offset points",
            fontsize=LABEL_SIZE,
            fontweight="bold" if strong else "normal",
            color="black" if strong else "#4A4A4A",
            arrowprops={"arrowstyle": "-", "color": "#B0B0B0", "linewidth": 0.6, "shrinkA": 0, "shrinkB": half},
            zorder=5,
        )


def _boxes_along(series: Series, axis: Axes) -> list[Box]:
    """Small boxes on a line, where no label should be."""
    corners = [_in_points(axis, float(x), y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
    boxes = []
    for (left, low), (right, high) in pairwise(corners):
        steps = max(1, round(math.hypot(right - left, high - low) / 3))
        for number in range(steps + 1):
            share = number / steps
            boxes.append(Box(left + share * (right - left) - 1, low + share * (high - low) - 1, 2, 2))
    return boxes


def _label_width(label: str) -> float:
    return LABEL_SIZE * 0.6 * len(label)


def _measured_width(label: str, bold: bool) -> float:
    font = FontProperties(weight="bold" if bold else "normal")
    return float(TextPath((0, 0), _plain(label), size=LABEL_SIZE, prop=font).get_extents().width) + 2


def _in_points(axis: Axes, x: float, y: float) -> tuple[float, float]:
    """The position of a data point on the paper, in points (1/72 inch)."""
    across, up = axis.transData.transform((x, y)) * 72 / axis.figure.dpi
    return float(across), float(up)
