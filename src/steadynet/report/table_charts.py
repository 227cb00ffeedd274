"""The figures that are drawn from tables: overview, bars at close accuracy, radii, Pareto front, sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from steadynet.report.charts import Chart, Panel, Series, Style, styles
from steadynet.report.layout import Entry, Line, Table
from steadynet.report.metrics import Metric, radius

Value = Callable[[Entry], float | None]
SIDES: tuple[tuple[str, Value], ...] = (("ours", lambda entry: entry.value), ("paper", lambda entry: entry.paper))


def table_charts(table: Table) -> list[Chart]:
    """Every figure that a table has the numbers for."""
    if not table.lines or any(line.metric.is_delta for line in table.lines):
        return []
    makers = (_overview, _close_accuracy, _by_radius, _pareto, _beta, _gamma)
    return [chart for chart in (maker(table) for maker in makers) if chart]


def scores(table: Table, value: Value) -> dict[str, dict[str, float]]:
    """Figure 2: by metric and method, with the best method of each model and radius as 100, times by reciprocal.

    Averaged over models and radii; a line that only one method has, or in which the best is 0, says nothing.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for line in table.lines:
        if line.metric.name == "stable_ibp_percent":  # no metric of the paper
            continue
        for model in table.models:
            there = {
                method: number
                for (of, method), entry in zip(table.columns, line.entries, strict=True)
                if of == model and (number := value(entry)) is not None
            }
            for method, score in _scaled(line.metric, there).items():
                found.setdefault(line.metric.label, {}).setdefault(method, []).append(score)
    return {label: {name: fmean(values) for name, values in by.items()} for label, by in found.items()}


def _scaled(what: Metric, values: dict[str, float]) -> dict[str, float]:
    if what.is_time:
        values = {name: 1 / value for name, value in values.items() if value > 0}
    best = max(values.values(), default=0.0)
    return {name: 100 * value / best for name, value in values.items()} if len(values) > 1 and best > 0 else {}


def _sides(table: Table) -> Sequence[tuple[str, Value]]:
    return SIDES if table.has_paper else SIDES[:1]


def _methods(table: Table) -> list[str]:
    return list(dict.fromkeys(method for _, method in table.columns))


def _overview(table: Table) -> Chart | None:
    if any(mark in method for method in _methods(table) for mark in ("@", "=")):
        return None
    looks, panels = styles(_methods(table)), []
    for side, value in _sides(table):
        found = scores(table, value)
        names = [
            f"1/{label.removesuffix(' (s)')}" if "(s)" in label else label.removesuffix(" %").removeprefix("Test ")
            for label in found
        ]
        series = [
            Series(method, names, [by.get(method) for by in found.values()], looks[method])
            for method in _methods(table)
            if any(method in by for by in found.values())
        ]
        if series:
            panels.append(Panel(side, "", "score (best = 100)", "bars", series, percent=True))
    note = "For each model and radius the best method is 100 and the others are scaled to it (times by reciprocal); "
    note += "averaged over models and radii, as in the paper's Figure 2."
    return Chart(f"{table.name}-overview", f"Overview: {table.title}", panels, note) if panels else None


def _close_accuracy(table: Table) -> Chart | None:
    """Figure 3: a panel a metric, groups of models and windows, a bar a method."""
    windows = list(dict.fromkeys(method.partition("@")[2] for method in _methods(table) if "@" in method))
    if not windows:
        return None
    bases = list(dict.fromkeys(method.partition("@")[0] for method in _methods(table)))
    looks, panels = styles(bases), []
    for line in table.lines:
        for side, value in _sides(table):
            series = [_window_bars(table, line, base, windows, value, looks[base]) for base in bases]
            series = [bars for bars in series if any(number is not None for number in bars.y)]
            if series:
                panels.append(Panel(f"{line.metric.label}, {side}", "", line.metric.label, "bars", series))
    note = "Each window is how far test accuracy lies below natural training, in points; a method that missed a window "
    note += "has no bar there, as in the paper's Figure 3. Natural training stands in every window, to compare."
    return Chart(f"{table.name}-bars", f"Close accuracy: {table.title}", panels, note, across=2) if panels else None


def _window_bars(table: Table, line: Line, base: str, windows: list[str], value: Value, style: Style) -> Series:
    entries = dict(zip(table.columns, line.entries, strict=True))
    names, numbers = [], []
    for model in table.models:
        for window in windows:
            entry = entries.get((model, f"{base}@{window}")) or entries.get((model, base))
            names.append(f"{model}, {window}")
            numbers.append(value(entry) if entry else None)
    return Series(base, names, numbers, style)


def _by_radius(table: Table) -> Chart | None:
    """UNSAT % and Stable % against ε: a panel a model and metric, a line a method, the paper's faint."""
    if any("=" in method for method in _methods(table)):
        return None
    panels = []
    for model in table.models:
        for name in ("unsat_percent", "stable_percent"):
            lines = [line for line in table.lines if line.metric.name == name and line.eps is not None]
            if len(lines) > 1:
                panels.append(_radius_panel(table, model, lines))
    panels = [panel for panel in panels if panel.series]
    note = "The dotted, faint lines are the paper's." if table.has_paper else ""
    return Chart(f"{table.name}-radii", f"By radius: {table.title}", panels, note, across=2) if panels else None


def _radius_panel(table: Table, model: str, lines: list[Line]) -> Panel:
    looks, series = styles(_methods(table)), []
    numbers = [number for number, column in enumerate(table.columns) if column[0] == model]
    for side, value in reversed(SIDES):
        for number in numbers:
            method = table.columns[number][1]
            y = [value(line.entries[number]) for line in lines]
            if any(number is not None for number in y):
                x = [line.eps or 0.0 for line in lines]
                name = method if side == "ours" else f"{method}, paper"
                series.append(Series(name, x, y, looks[method], faint=side == "paper"))
    what = lines[0].metric
    names = {line.eps or 0.0: radius(line.eps) for line in lines}
    return Panel(f"{model}: {what.label}", "ε", what.label, "lines", series, percent=True, names=names)


def _pareto(table: Table) -> Chart | None:
    """Accuracy against the verified share: a panel a radius, a point a network, the front drawn through the best."""
    accuracy = next((line for line in table.lines if line.metric.name == "test_acc_percent"), None)
    verified = [line for line in table.lines if line.metric.name == "unsat_percent"]
    if accuracy is None or len(table.columns) < 2:
        return None
    looks, panels = styles(_methods(table)), []
    for line in verified:
        points = [
            (column, across.value, up.value)
            for column, across, up in zip(table.columns, accuracy.entries, line.entries, strict=True)
            if across.value is not None and up.value is not None
        ]
        series = [
            Series(method, [x], [y], looks[method], [f"{model}, {method}"], labels=[_short(table, model, method)])
            for (model, method), x, y in points
        ]
        front = pareto_front([(x, y) for _, x, y in points])
        if len(front) > 1:
            style = Style("#7F7F7F", "", "", True)
            series.append(Series("Pareto front", [x for x, _ in front], [y for _, y in front], style))
        if points:
            title = f"ε {radius(line.eps)}"
            panels.append(Panel(title, "test accuracy %", "proved (UNSAT) %", "points", series))
    note = "Up and to the right is better; on the dashed front no network is better in both."
    return Chart(f"{table.name}-pareto", f"Accuracy and proofs: {table.title}", panels, note) if panels else None


def _short(table: Table, model: str, method: str) -> str:
    return method if len(table.models) == 1 else model


def pareto_front(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both coordinates, from left to right.

    >>> pareto_front([(1, 3), (2, 2), (1, 1), (3, 0)])
    [(1, 3), (2, 2), (3, 0)]
    """
    front: list[tuple[float, float]] = []
    for x, y in sorted(set(points), key=lambda point: (-point[0], -point[1])):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front[::-1]


def _beta(table: Table) -> Chart | None:
    """The sweep of β: a panel a metric and model, ours and the paper's line."""
    found = {method: float(method.removeprefix("beta=")) for method in _methods(table) if method.startswith("beta=")}
    panels = []
    for line, model in ((line, model) for model in table.models for line in table.lines):
        entries = dict(zip(table.columns, line.entries, strict=True))
        order = sorted((method for method in found if (model, method) in entries), key=lambda method: found[method])
        series = []
        for (side, value), look in zip(SIDES, styles(["nbc", "natural"]).values(), strict=True):
            y = [value(entries[model, method]) for method in order]
            if any(number is not None for number in y):
                series.append(Series(side, [found[method] for method in order], y, look, faint=side == "paper"))
        if series:
            panels.append(Panel(f"{model}: {line.metric.label}", "β", line.metric.label, "lines", series))
    return Chart(f"{table.name}-sweep", f"Sweep: {table.title}", panels) if panels else None


def _gamma(table: Table) -> Chart | None:
    """The choices of γ: a panel a metric and model, a group a choice, a bar for ours and one for the paper's."""
    panels = []
    for line, model in ((line, model) for model in table.models for line in table.lines):
        entries = {
            method: entry
            for (of, method), entry in zip(table.columns, line.entries, strict=True)
            if of == model and method.startswith("gamma=")
        }
        names = [method.removeprefix("gamma=") for method in entries]
        series = []
        for (side, value), look in zip(SIDES, styles(["nbc", "trades"]).values(), strict=True):
            y = [value(entry) for entry in entries.values()]
            if any(number is not None for number in y):
                series.append(Series(side, names, y, look))
        if series:
            panels.append(Panel(f"{model}: {line.metric.label}", "γ", line.metric.label, "bars", series))
    return Chart(f"{table.name}-sweep", f"Choices: {table.title}", panels) if panels else None
