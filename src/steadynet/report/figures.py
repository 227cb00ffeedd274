"""Charts drawn for print, as PNG and SVG, with matplotlib (an optional extra)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from steadynet.errors import UserError
from steadynet.files import disk_errors, write_atomically
from steadynet.report.charts import Chart, Panel, Series

LABEL_SIZE = 8  # points
LABEL_PLACES = (4, -10, 14, -20)  # points above what is labelled
SETTINGS: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "hatch.linewidth": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "steadynet",  # the same figure is the same file
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def write_figures(charts: Iterable[Chart], folder: Path) -> list[Path]:
    """Each chart as ``NAME.png`` and ``NAME.svg``."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("figures need an extra: pip install 'steadynet[report]'") from error
    written = []
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(SETTINGS):
        for chart in charts:
            figure = drawn(chart, Figure)
            for kind, extra in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
                path = folder / f"{file_name(chart.name)}.{kind}"
                write_atomically(path, lambda to, k=kind, e=extra, f=figure: f.savefig(to, format=k, **e))  # type: ignore[misc]
                written.append(path)
    return written


def file_name(name: str) -> str:
    """A name that is a file's on every system.

    >>> file_name("runs-a/b <c>")
    'runs-a-b--c-'
    """
    return "".join(letter if letter.isalnum() or letter in "-_.+" else "-" for letter in name)[:100].lstrip(".")


def drawn(chart: Chart, figure_class: Any) -> Any:
    """The chart as a matplotlib figure, with one legend under all panels."""
    across = min(chart.across, len(chart.panels))
    down = -(-len(chart.panels) // across)
    widest = max(_width(panel) for panel in chart.panels)
    figure = figure_class(figsize=(max(across * widest, 4.5), 2.9 * down + 0.9))
    axes = figure.subplots(down, across, squeeze=False).flatten()
    handles: dict[str, Any] = {}
    for panel, axis in zip(chart.panels, axes, strict=False):
        handles |= _draw(panel, axis)
    for axis in axes[len(chart.panels) :]:
        axis.set_axis_off()
    figure.suptitle(_plain(chart.title), fontsize=11, fontweight="bold", wrap=True)
    if len(handles) > 1 or "" not in handles:
        columns = max(1, min(len(handles), int(figure.get_figwidth() // 1.6)))
        figure.legend(handles.values(), map(_plain, handles), loc="outside lower center", ncols=columns, fontsize=9)
    if any(series.labels for panel in chart.panels for series in panel.series):
        figure.draw_without_rendering()  # then everything is in its place
        for panel, axis in zip(chart.panels, axes, strict=False):
            _write_labels(panel, axis)
    return figure


def _width(panel: Panel) -> float:
    """Inches: bars need room for their names."""
    names = max((len(series.x) for series in panel.series), default=0)
    return 3.2 if panel.kind != "bars" else min(max(3.2, 0.14 * names * len(panel.series) + 1.2), 7.0)


def _plain(text: str) -> str:
    """Text without what matplotlib reads as mathematics."""
    return text.replace("$", r"\$")


def _draw(panel: Panel, axis: Any) -> dict[str, Any]:
    """Draw one panel; what the legend needs of it, by name."""
    handles = _bars(panel, axis) if panel.kind == "bars" else _lines(panel, axis)
    axis.set_title(_plain(panel.title))
    axis.set_xlabel(_plain(panel.x_label))
    axis.set_ylabel(_plain(panel.y_label))
    if panel.log_x:
        axis.set_xscale("log")
    if panel.log_y:
        axis.set_yscale("log")
    if panel.percent:
        axis.set_ylim(-2 if panel.kind != "bars" else 0, 102)
    elif panel.kind in ("bars", "steps"):
        axis.set_ylim(bottom=0)
    if panel.names:
        axis.set_xticks(list(panel.names), list(panel.names.values()))
    return handles


def _bars(panel: Panel, axis: Any) -> dict[str, Any]:
    names = list(dict.fromkeys(str(name) for series in panel.series for name in series.x))
    width, handles = 0.84 / max(len(panel.series), 1), {}
    for number, series in enumerate(panel.series):
        values = {str(name): value for name, value in zip(series.x, series.y, strict=True) if value is not None}
        places = [names.index(name) + (number - (len(panel.series) - 1) / 2) * width for name in values]
        handles[series.name] = axis.bar(
            places,
            list(values.values()),
            width * 0.94,
            color=series.style.colour,
            hatch=series.style.hatch,
            edgecolor="white",
            linewidth=0.4,
        )
    tilted = sum(len(name) for name in names) > 34
    axis.set_xticks(
        range(len(names)),
        [_plain(name) for name in names],
        rotation=35 if tilted else 0,
        ha="right" if tilted else "center",
    )
    axis.grid(False, axis="x")
    return handles


def _lines(panel: Panel, axis: Any) -> dict[str, Any]:
    handles = {}
    for series in panel.series:
        look = series.style
        (handle,) = axis.plot(
            series.x,
            [float("nan") if value is None else value for value in series.y],
            color=look.colour,
            marker=look.marker or None,
            markevery=max(1, len(series.x) // 8) if panel.kind == "steps" else None,
            markersize=5 if panel.kind != "points" else 8,
            markerfacecolor="white" if series.faint or look.dashed else look.colour,
            linestyle=_line_style(panel, series),
            linewidth=1.1 if series.faint else 1.7,
            alpha=0.65 if series.faint else 1.0,
            drawstyle="steps-post" if panel.kind == "steps" else "default",
        )
        handles[series.name] = handle
    if panel.kind == "points":
        axis.margins(x=0.18, y=0.12)
        low, high = axis.get_ylim()
        if high - low < 10:
            axis.set_ylim((low + high) / 2 - 5, (low + high) / 2 + 5)
    return handles


def _write_labels(panel: Panel, axis: Any) -> None:
    """Each label beside its point, where no earlier one is; over it, where none of the places is free."""
    taken: list[tuple[float, float, float]] = []  # left, bottom and width, in points as printers count them
    for series in panel.series:
        for x, y, label in zip(series.x, series.y, series.labels, strict=False):
            across, up = axis.transData.transform((x, y)) * 72 / axis.figure.dpi
            width = LABEL_SIZE * 0.6 * len(label)
            places = [(right, down) for down in LABEL_PLACES for right in (6, -6 - width)]
            free = [
                (right, down)
                for right, down in places
                if not any(
                    abs(up + down - bottom) < LABEL_SIZE + 1 and left - width < across + right < left + wide
                    for left, bottom, wide in taken
                )
            ]
            right, down = (free or places)[0]
            taken.append((across + right, up + down, width))
            axis.annotate(_plain(label), (x, y), xytext=(right, down), textcoords="offset points", fontsize=LABEL_SIZE)


def _line_style(panel: Panel, series: Series) -> str:
    if panel.kind == "points" and len(series.x) == 1:
        return "none"
    return ":" if series.faint else "--" if series.style.dashed else "-"
