"""The main figure: how many properties are proved, undecided and refuted, for each method and radius."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadynet.report.charts import BLUE, LIGHT_GREY, ORANGE, Chart, Kind, Panel, Series, Style, chart_of
from steadynet.report.metrics import radius
from steadynet.report.records import Experiment, Run
from steadynet.verification.properties import Verdict

MAX_PANELS = 8  # of one model; with more methods than that, each radius has a panel instead of each method
LOWEST_LABELLED = 9.0  # per cent: a bar that is lower has no room for its label
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
    """Draw the bars of one panel. A radius without a verdict keeps its place, so that panels can be compared."""
    series = [_series(group, bars) for group in GROUPS] if any(bar.verdicts for bar in bars) else []
    return Panel(title, x_label, "share of properties in %", Kind.STACKED, series, percent=True)


def _series(group: VerdictGroup, bars: Sequence[Bar]) -> Series:
    shares = [100 * bar.count(group) / len(bar.verdicts) if bar.verdicts else None for bar in bars]
    return Series(
        group.name,
        [bar.name for bar in bars],
        shares,
        group.style,
        [_in_words(group, bar) for bar in bars],
        labels=[
            str(bar.count(group)) if (share or 0.0) >= LOWEST_LABELLED else ""
            for bar, share in zip(bars, shares, strict=True)
        ],
    )


def _in_words(group: VerdictGroup, bar: Bar) -> str:
    if not bar.verdicts:
        return f"{bar.place}: not verified"
    return f"{bar.place}: {bar.count(group)} of {len(bar.verdicts)} {group.name}"
