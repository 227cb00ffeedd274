"""The figures drawn from a table: overview, bars at similar accuracy, curves over radii, sweeps; and ``pareto``'s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from steadynet.experiments.strength_search import AccuracyWindow
from steadynet.experiments.variants import Value, Variant
from steadynet.report.charts import GREY, MANY_LABELS, Chart, Kind, Panel, Series, Style, chart_of, styles
from steadynet.report.layout import Entry, Line, Table
from steadynet.report.metrics import Metric, radius
from steadynet.report.pareto import pareto_chart


@dataclass(frozen=True)
class Side:
    """Whose number of an entry is drawn: ours or the paper's."""

    name: str
    value: Callable[[Entry], float | None]


OURS = Side("ours", lambda entry: entry.value)
PAPER = Side("paper", lambda entry: entry.paper)


def table_charts(table: Table) -> list[Chart]:
    """Every figure that the table has numbers for. A table of differences has none."""
    table = replace(table, lines=[line for line in table.lines if line.metric.is_quality])
    if not table.lines or any(line.metric.is_delta for line in table.lines):
        return []
    makers = (_overview, _similar_accuracy, _by_radius, pareto_chart, _beta, _gamma)
    return [chart for chart in (maker(table) for maker in makers) if chart]


def _sides(table: Table) -> Sequence[Side]:
    return (OURS, PAPER) if table.has_paper else (OURS,)


def _drawable(series: Iterable[Series]) -> list[Series]:
    return [one for one in series if one.has_values]


def scores(table: Table, side: Side) -> dict[Metric, dict[str, float]]:
    """The scores of Figure 2 of the paper, by metric and label.

    For each model and radius the best method scores 100 and the others are scaled to it; times are scaled by their
    reciprocals. The scores are averaged over models and radii. A line is left out if only one method has a number, or
    if the best number is 0.
    """
    found: dict[Metric, dict[str, list[float]]] = {}
    for line in table.lines:
        if line.metric.name == "stable_ibp_percent":  # not a metric of the paper
            continue
        for model in table.models:
            values = {
                label: number
                for (its_model, label), entry in table.entries(line).items()
                if its_model == model and (number := side.value(entry)) is not None
            }
            for label, score in _scaled(line.metric, values).items():
                found.setdefault(line.metric, {}).setdefault(label, []).append(score)
    return {metric: {label: fmean(values) for label, values in by.items()} for metric, by in found.items()}


def _scaled(metric: Metric, values: dict[str, float]) -> dict[str, float]:
    if metric.is_time:
        values = {name: 1 / value for name, value in values.items() if value > 0}
    best = max(values.values(), default=0.0)
    return {name: 100 * value / best for name, value in values.items()} if len(values) > 1 and best > 0 else {}


def _overview(table: Table) -> Chart | None:
    """Figure 2 of the paper: one panel for us and one for the paper, one group per metric, one bar per method."""
    if len({variant.method for variant in table.variants.values()}) < len(table.variants):
        return None  # a table of several variants of one method has figures of its own
    if len(table.variants) > MANY_LABELS:
        return None  # nobody can tell so many bars apart
    looks, panels = styles(table.variants.values()), []
    for side in _sides(table):
        found = scores(table, side)
        names = [metric.score_label for metric in found]
        series = _drawable(
            Series(label, names, [by.get(label) for by in found.values()], looks[label]) for label in table.labels
        )
        panels.append(Panel(side.name, "", "score (best = 100)", Kind.BARS, series, percent=True))
    note = "As in Figure 2 of the paper: for each model and radius the best method scores 100 and the others are "
    note += "scaled to it (times by their reciprocals). The bars are averages over models and radii."
    return chart_of(f"{table.name}-overview", "Overview", table.title, panels, note)


def _similar_accuracy(table: Table) -> Chart | None:
    """Figure 3 of the paper: one panel per metric, one group per model and accuracy window, one bar per method."""
    windows = list(dict.fromkeys(variant.window for variant in table.variants.values() if variant.window))
    if not windows:
        return None
    methods = list(dict.fromkeys(variant.method for variant in table.variants.values()))
    looks = styles(map(Variant.plain, methods))
    panels = [
        Panel(
            f"{line.metric.label}, {side.name}",
            "",
            line.metric.label,
            Kind.BARS,
            _drawable(_window_bars(table, line, method, windows, side, looks[method]) for method in methods),
        )
        for line in table.lines
        for side in _sides(table)
    ]
    note = "A window says by how many percentage points test accuracy is below that of natural training. As in "
    note += "Figure 3 of the paper, a method that did not reach a window has no bar there. Natural training is shown "
    note += "in every window for comparison."
    return chart_of(f"{table.name}-bars", "Similar accuracy", table.title, panels, note, across=2)


def _window_bars(
    table: Table, line: Line, method: str, windows: list[AccuracyWindow], side: Side, style: Style
) -> Series:
    entries, names, numbers = table.entries(line), [], []
    labels = {variant.window: variant.label for variant in table.variants.values() if variant.method == method}
    for model in table.models:
        for window in windows:
            label = labels.get(window) or labels.get(None)
            entry = entries.get((model, label)) if label else None
            names.append(f"{model}, {window.low:g}-{window.high:g}")
            numbers.append(side.value(entry) if entry else None)
    return Series(method, names, numbers, style)


def _by_radius(table: Table) -> Chart | None:
    """UNSAT % and Stable % over ε: one panel per model and metric, one line per method, the paper's lines faint."""
    alike = Counter((variant.method, variant.window) for variant in table.variants.values())
    if max(alike.values()) > 1:  # a sweep over a setting
        return None
    panels = []
    for model in table.models:
        part = table.of_model(model)
        for name in ("unsat_percent", "stable_percent"):
            lines = [line for line in part.lines if line.metric.name == name and line.eps is not None]
            if len(lines) > 1:
                panels.append(_radius_panel(part, model, lines))
    note = "Faint dotted lines are the paper's." if table.has_paper else ""
    return chart_of(f"{table.name}-radii", "By radius", table.title, panels, note, across=2)


def _radius_panel(table: Table, model: str, lines: list[Line]) -> Panel:
    looks, series = styles(table.variants.values()), []
    x = [line.eps or 0.0 for line in lines]
    for column in table.columns:
        if column[0] == model:
            ours, papers = ([side.value(table.entries(line)[column]) for line in lines] for side in (OURS, PAPER))
            curve = Series(column[1], x, ours, looks[column[1]])
            name = f"{column[1]}, paper"
            series += [Series(name, x, papers, looks[column[1]], faint=True, in_legend=not curve.has_values), curve]
    metric, ticks = lines[0].metric, {line.eps or 0.0: radius(line.eps) for line in lines}
    drawable = sorted(_drawable(series), key=lambda curve: not curve.faint)  # ours are drawn over the paper's
    if any(curve.faint for curve in drawable):
        drawable.append(Series("paper", x[:1], [None], Style(GREY, "", ""), faint=True))  # for the legend only
    title = f"{model}: {metric.label}"
    return Panel(title, "ε", metric.label, Kind.LINES, drawable, percent=True, tick_names=ticks)


def _beta(table: Table) -> Chart | None:
    """The sweep over β: one panel per model and metric, with our line and the paper's."""
    values = {label: float(beta) for label, beta in _swept(table, "beta").items() if isinstance(beta, int | float)}
    order = dict(sorted(values.items(), key=lambda item: item[1]))
    panels = _sweep(table, "β", Kind.LINES, order, styles(map(Variant.plain, ("nbc", "natural"))))
    return chart_of(f"{table.name}-sweep", "Sweep over β", table.title, panels)


def _gamma(table: Table) -> Chart | None:
    """The choices of γ: one panel per model and metric, one group per choice, with our bar and the paper's."""
    names = {label: str(gamma) for label, gamma in _swept(table, "gamma").items()}
    panels = _sweep(table, "γ", Kind.BARS, names, styles(map(Variant.plain, ("nbc", "trades"))))
    return chart_of(f"{table.name}-sweep", "Choices of γ", table.title, panels)


def _swept(table: Table, name: str) -> dict[str, Value]:
    """The values of a setting by label, if a method has several."""
    found = {variant.label: variant.settings[name] for variant in table.variants.values() if name in variant.settings}
    return found if len(set(found.values())) > 1 else {}


def _sweep(
    table: Table, x_label: str, kind: Kind, positions: Mapping[str, float | str], looks: Mapping[str, Style]
) -> list[Panel]:
    """One panel per model and metric. ``positions`` says where each label stands on the x axis.

    Our numbers have the first of the two ``looks``, the paper's the second.
    """
    panels = []
    for model in table.models:
        labels = [label for label in positions if (model, label) in table.columns]
        x = [positions[label] for label in labels]
        for line in table.lines:
            entries, series = table.entries(line), []
            for side, look in zip((OURS, PAPER), looks.values(), strict=True):
                y = [side.value(entries[model, label]) for label in labels]
                series.append(Series(side.name, x, y, look, faint=side is PAPER and kind is Kind.LINES))
            label = line.metric.label
            panels.append(Panel(f"{model}: {label}", x_label, label, kind, _drawable(series)))
    return panels
