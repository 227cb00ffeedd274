"""The main figure: how many properties are proved, undecided and refuted, for each method and radius."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadynet.report.charts import BLUE, LIGHT_GREY, ORANGE, Chart, Kind, Panel, Series, Style, chart_of
from steadynet.report.metrics import radius
from steadynet.report.records import Experiment, Run
from steadynet.verification.properties import Verdict

MAX_PANELS = 8  # of one model; with more methods than that, each radius has a panel instead of each method
NOTE = (
    "Proved: no change of at most ε per pixel gives the image another label. Refuted: such a change was found. "
    "Undecided: neither within the time limit."
)


@dataclass(frozen=True)
class VerdictGroup:
    """Verdicts that mean the same to a reader who wants to know whether a property is proved."""

    name: str
    verdicts: tuple[Verdict, ...]
    style: Style


GROUPS = (
    VerdictGroup("proved", (Verdict.UNSAT,), Style(BLUE, "", "")),
    VerdictGroup("undecided", (Verdict.TIMEOUT, Verdict.UNKNOWN, Verdict.ERROR), Style(LIGHT_GREY, "", "//")),
    VerdictGroup("refuted", (Verdict.SAT,), Style(ORANGE, "", "")),
)


@dataclass(frozen=True)
class Bar:
    """The verdicts behind one bar. ``name`` stands below it, ``place`` says in words what it is about."""

    name: str
    place: str
    verdicts: list[Verdict]

    def count(self, group: VerdictGroup) -> int:
        """How many of the verdicts belong to a group."""
        return sum(verdict in group.verdicts for verdict in self.verdicts)


def verdict_chart(experiment: Experiment) -> Chart | None:
    """The shares of proved, undecided and refuted properties: one panel per model and method, one bar per radius.

    Where there is only one radius, or where there are very many methods, a panel has one bar per method instead.

    Args:
        experiment: The experiment. The seeds of a method are counted together.

    Returns:
        The figure, or None if there are fewer than two bars, which a table says better.
    """
    panels = []
    for model in dict.fromkeys(run.model for run in experiment.runs):
        runs = [run for run in experiment.runs if run.model == model and run.verdicts]
        radii = sorted({row.eps for run in runs for row in run.verdicts})
        labels = list(dict.fromkeys(run.label for run in runs))
        if len(radii) > 1 and len(labels) <= MAX_PANELS:
            panels += [_panel(f"{model}, {label}", "ε", _by_radius(runs, label, radii)) for label in labels]
        else:
            panels += [_panel(f"{model}, ε {radius(eps)}", "", _by_method(runs, labels, eps)) for eps in radii]
    return chart_of(
        f"{experiment.name}-verdicts", "Proved, undecided and refuted", experiment.title, panels, NOTE, across=4
    )


def _by_radius(runs: Sequence[Run], label: str, radii: Sequence[float]) -> list[Bar]:
    return [Bar(radius(eps), f"{label}, ε {radius(eps)}", _verdicts(runs, label, eps)) for eps in radii]


def _by_method(runs: Sequence[Run], labels: Sequence[str], eps: float) -> list[Bar]:
    return [Bar(label, f"{label}, ε {radius(eps)}", _verdicts(runs, label, eps)) for label in labels]


def _verdicts(runs: Sequence[Run], label: str, eps: float) -> list[Verdict]:
    return [row.verdict for run in runs if run.label == label for row in run.verdicts if row.eps == eps]


def _panel(title: str, x_label: str, bars: Sequence[Bar]) -> Panel:
    """Draw the bars of one panel. A bar without a verdict is left out."""
    there = [bar for bar in bars if bar.verdicts]
    series = [_series(group, there) for group in GROUPS]
    return Panel(title, x_label, "share of properties in %", Kind.STACKED, series if there else [], percent=True)


def _series(group: VerdictGroup, bars: Sequence[Bar]) -> Series:
    counts = [bar.count(group) for bar in bars]
    return Series(
        group.name,
        [bar.name for bar in bars],
        [100 * count / len(bar.verdicts) for count, bar in zip(counts, bars, strict=True)],
        group.style,
        [f"{bar.place}: {count} of {len(bar.verdicts)} {group.name}" for count, bar in zip(counts, bars, strict=True)],
        labels=[str(count) if count else "" for count in counts],
    )
