"""The figures that are drawn from runs: cactus plot, stable neurons per layer, training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steadynet.report.charts import Chart, Panel, Series, Style, styles
from steadynet.report.collect import Experiment, Run
from steadynet.report.layers import LayerShares
from steadynet.report.metrics import radius
from steadynet.verification.properties import Verdict

MOST_CURVES = 12  # in a panel
SHORTEST = 1e-3  # seconds: where the axis of a cactus plot begins


def run_charts(experiment: Experiment, layers: Mapping[str, LayerShares]) -> list[Chart]:
    """Every figure that the runs of an experiment have the numbers for."""
    charts = (_cactus(experiment), _layers(experiment, layers), _training(experiment))
    return [chart for chart in charts if chart]


def _models(experiment: Experiment) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in experiment.runs:
        found.setdefault(run.model, []).append(run)
    return found


def _looks(runs: Sequence[Run]) -> dict[str, Style]:
    return styles([run.method for run in runs])


def _name(run: Run, runs: Sequence[Run]) -> str:
    seeds = {other.seed for other in runs if other.method == run.method}
    return run.method if len(seeds) < 2 else f"{run.method}, seed {run.seed}"


def _cactus(experiment: Experiment) -> Chart | None:
    panels = []
    for model, runs in _models(experiment).items():
        looks = _looks(runs)
        for eps in sorted({row.eps for run in runs for row in run.verdicts}):
            series = [_decided(run, eps, looks[run.method], _name(run, runs)) for run in runs]
            series = [entry for entry in series if entry.x]
            if series:
                title = f"{model}, ε {radius(eps)}"
                panels.append(Panel(title, "seconds a property", "properties decided", "steps", series, log_x=True))
    note = "How many properties are proved or refuted within so many seconds each; higher and further left is better."
    return Chart(f"{experiment.name}-cactus", f"Decided within t: {experiment.title}", panels, note) if panels else None


def _decided(run: Run, eps: float, style: Style, name: str) -> Series:
    rows = [row for row in run.verdicts if row.eps == eps]
    times = sorted(max(row.seconds, SHORTEST) for row in rows if row.verdict in (Verdict.UNSAT, Verdict.SAT))
    x: list[float] = [*times]
    y: list[float | None] = [float(count + 1) for count in range(len(times))]
    if rows:  # to the time-out, so that lines end together
        x.append(max([row.timeout for row in rows] + x))
        y.append(float(len(times)))
    return Series(name, x, y, style)


def _layers(experiment: Experiment, layers: Mapping[str, LayerShares]) -> Chart | None:
    panels, said = [], set()
    for model, runs in _models(experiment).items():
        looks, shown = _looks(runs), [run for run in runs if run.name in layers][:MOST_CURVES]
        for eps in sorted({eps for run in shown for eps in layers[run.name].shares}):
            series = []
            for run in shown:
                found = layers[run.name]
                said.add(f"{found.method} on {found.images} test images")
                if eps in found.shares:
                    names = [f"{number + 1} ({size:,})" for number, size in enumerate(found.sizes)]
                    y: list[float | None] = [100 * share for share in found.shares[eps]]
                    series.append(Series(_name(run, runs), names, y, looks[run.method]))
            title = f"{model}, ε {radius(eps)}"
            panels.append(Panel(title, "ReLU layer (neurons)", "stable %", "bars", series, percent=True))
    note = f"Bounds by {', '.join(sorted(said))}, computed for this report."
    return Chart(f"{experiment.name}-layers", f"Stable neurons: {experiment.title}", panels, note) if panels else None


def _training(experiment: Experiment) -> Chart | None:
    panels = []
    for model, runs in _models(experiment).items():
        trained = [run for run in runs if run.epochs][:MOST_CURVES]
        looks = _looks(trained)
        for key, label in (("validation_accuracy", "validation accuracy %"), ("stable_share_ibp", "stable % (ibp)")):
            series = [_curve(run, key, 100, looks[run.method], _name(run, runs)) for run in trained]
            series = [entry for entry in series if entry.x]
            if series:
                panels.append(Panel(f"{model}: {label}", "epoch", label, "lines", series, percent=True))
        losses = [_losses(run, looks[run.method], _name(run, runs)) for run in trained]
        losses = [entry for entry in losses if entry.x]
        if losses:
            panels.append(Panel(f"{model}: training loss", "epoch", "sum of the terms", "lines", losses))
    return Chart(f"{experiment.name}-training", f"Training: {experiment.title}", panels) if panels else None


def _curve(run: Run, key: str, scale: float, style: Style, name: str) -> Series:
    found = [(epoch["epoch"], epoch[key]) for epoch in run.epochs if isinstance(epoch.get(key), (int, float))]
    return Series(name, [float(x) for x, _ in found], [scale * y for _, y in found], style)


def _losses(run: Run, style: Style, name: str) -> Series:
    found = [(epoch["epoch"], sum(epoch["loss"].values())) for epoch in run.epochs if epoch.get("loss")]
    return Series(name, [float(x) for x, _ in found], [float(y) for _, y in found], style)
