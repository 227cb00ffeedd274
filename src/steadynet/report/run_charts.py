"""The figures drawn from runs: cactus plot, stable neurons per layer, training curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from steadynet.report.charts import Chart, Kind, Panel, Series, Style, chart_of, log_ticks, styles
from steadynet.report.layers import LayerShares
from steadynet.report.metrics import radius
from steadynet.report.radius_curve import radius_panel
from steadynet.report.records import Experiment, Run
from steadynet.runs.metrics import EpochMetrics
from steadynet.verification.properties import Verdict
from steadynet.verification.radius_table import read_radii

MAX_CURVES = 12  # per panel
SHORTEST_TIME = 1e-3  # seconds; shorter times are drawn here
DECIDED = (Verdict.UNSAT, Verdict.SAT)
CURVES: tuple[tuple[str, Callable[[EpochMetrics], float | None], bool], ...] = (
    # label, value, whether it is in per cent
    ("validation accuracy %", lambda epoch: _percent(epoch.validation_accuracy), True),
    ("stable % (ibp)", lambda epoch: _percent(epoch.stable_share_ibp), True),
    ("training loss", lambda epoch: epoch.total_loss, False),
)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def run_charts(experiment: Experiment, layers: Mapping[str, LayerShares]) -> list[Chart]:
    """Every figure that the runs of an experiment have numbers for."""
    charts = (_radii(experiment), _cactus(experiment), _layers(experiment, layers), _training(experiment))
    return [chart for chart in charts if chart]


def _by_model(experiment: Experiment) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in experiment.runs:
        found.setdefault(run.model, []).append(run)
    return found


def _looks(runs: Sequence[Run]) -> dict[str, Style]:
    return styles([run.variant for run in runs])


def _name(run: Run, runs: Sequence[Run]) -> str:
    """The method, with the seed if the method was trained with several."""
    seeds = {other.seed for other in runs if other.label == run.label}
    return run.label if len(seeds) < 2 else f"{run.label}, seed {run.seed}"


def _radii(experiment: Experiment) -> Chart | None:
    """Certified accuracy against ε, of the runs whose radii were searched for."""
    panels = []
    for run in _few(experiment.runs):
        rows = read_radii(run.folder)
        if rows:
            panels.append(radius_panel(rows, rows[-1].most, f"{run.name}: {len(rows)} images"))
    note = "The share of images that are proved at each radius, and the share without a counterexample up to it. The "
    note += "share that is truly robust lies between the two lines."
    return chart_of(f"{experiment.name}-radii", "How far images keep their labels", experiment.title, panels, note)


def _cactus(experiment: Experiment) -> Chart | None:
    panels = []
    for model, every in _by_model(experiment).items():
        runs = _few(every)
        looks = _looks(runs)
        for eps in sorted({row.eps for run in runs for row in run.verdicts}):
            start = _shortest(runs, eps) / 2
            series = [_decided(run, eps, looks[run.label], _name(run, runs), start) for run in runs]
            drawable = [curve for curve in series if curve.has_values]
            ticks = log_ticks(start, max((float(x) for curve in drawable for x in curve.x), default=start))
            labels = f"{model}, ε {radius(eps)}", "seconds per property", "decided properties"
            panels.append(Panel(*labels, Kind.STEPS, drawable, log_x=True, tick_names=ticks))
    note = "How many properties are decided (proved or refuted) within the given time each. Higher and further to the "
    note += "left is better."
    if any(len(_few(runs)) < len(runs) for runs in _by_model(experiment).values()):
        note += " Of each method, only the first seed is shown."
    return chart_of(f"{experiment.name}-cactus", "Decided properties over time", experiment.title, panels, note)


def _few(runs: list[Run]) -> list[Run]:
    """All runs, or the first seed of each method where there are many."""
    if len(runs) <= MAX_CURVES:
        return runs
    first: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        first.setdefault(run.label, run)
    return [run for run in runs if first[run.label] is run]


def _shortest(runs: Sequence[Run], eps: float) -> float:
    """The shortest time of a decided property."""
    times = [row.seconds for run in runs for row in run.verdicts if row.eps == eps and row.verdict in DECIDED]
    return max(min(times, default=1.0), SHORTEST_TIME)


def _decided(run: Run, eps: float, style: Style, name: str, start: float) -> Series:
    """How many properties of a run are decided within each time. The line starts at ``start`` with none."""
    rows = [row for row in run.verdicts if row.eps == eps]
    times = sorted(max(row.seconds, SHORTEST_TIME) for row in rows if row.verdict in DECIDED)
    x: list[float] = [start, *times] if rows else []
    y: list[float | None] = [float(count) for count in range(len(x))]
    if rows:  # a last point at the time-out, so that all lines end there
        x.append(max([row.timeout for row in rows] + x))
        y.append(float(len(times)))
    return Series(name, x, y, style)


def _layers(experiment: Experiment, layers: Mapping[str, LayerShares]) -> Chart | None:
    panels, bounds = [], set()
    for model, runs in _by_model(experiment).items():
        looks, shown = _looks(runs), [run for run in runs if run.name in layers][:MAX_CURVES]
        bounds |= {f"{layers[run.name].method} on {layers[run.name].images} test images" for run in shown}
        for eps in sorted({eps for run in shown for eps in layers[run.name].shares}):
            series = [
                _layer_bars(layers[run.name], eps, looks[run.label], _name(run, runs))
                for run in shown
                if eps in layers[run.name].shares
            ]
            title = f"{model}, ε {radius(eps)}"
            panels.append(Panel(title, "ReLU layer (neurons)", "stable %", Kind.BARS, series, percent=True))
    note = f"The report computes these bounds itself: {', '.join(sorted(bounds))}."
    return chart_of(f"{experiment.name}-layers", "Stable neurons per layer", experiment.title, panels, note)


def _layer_bars(found: LayerShares, eps: float, style: Style, name: str) -> Series:
    layers = [f"{number + 1} ({size:,})" for number, size in enumerate(found.sizes)]
    return Series(name, layers, [100 * share for share in found.shares[eps]], style)


def _training(experiment: Experiment) -> Chart | None:
    panels = []
    for model, runs in _by_model(experiment).items():
        trained = [run for run in runs if run.epochs][:MAX_CURVES]
        looks = _looks(trained)
        for label, value, is_percent in CURVES:
            curves = [_curve(run, value, looks[run.label], _name(run, runs)) for run in trained]
            drawable = [curve for curve in curves if curve.has_values]
            title = f"{model}: {label}"
            panels.append(Panel(title, "epoch", label, Kind.LINES, drawable, percent=is_percent))
    return chart_of(f"{experiment.name}-training", "Training", experiment.title, panels)


def _curve(run: Run, value: Callable[[EpochMetrics], float | None], style: Style, name: str) -> Series:
    points = [(float(epoch.epoch), number) for epoch in run.epochs if (number := value(epoch)) is not None]
    return Series(name, [x for x, _ in points], [y for _, y in points], style)
