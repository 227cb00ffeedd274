"""The metrics of a table: their names, which direction is better, and how their numbers are written."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from steadynet.experiments.table import DELTA, TRAINING_MINUTES
from steadynet.training.notation import written_radius


@dataclass(frozen=True)
class Metric:
    """One metric of a table.

    ``label`` and ``latex`` are the paper's names for it. ``words`` name it on the page, for readers who do not know the
    paper, and ``meaning`` explains it. ``score_label`` names it where every metric is scaled so that higher is better.
    ``is_delta`` marks the difference to another method's value. ``is_quality`` is False for a number that says
    what a network cost, not how good it is: none of these is the best.
    """

    name: str
    label: str
    latex: str
    score_label: str
    words: str
    meaning: str
    higher_is_better: bool = True
    is_delta: bool = False
    is_quality: bool = True

    @property
    def is_time(self) -> bool:
        """Whether the numbers are in seconds; the others are in per cent."""
        return self.name.removesuffix(DELTA).endswith("_s")

    def written(self, value: float | None) -> str:
        """A number of this metric, as tables show it.

        >>> metric_named("unsat_percent").written(97.25), metric_named("time_s").written(0.0123)
        ('97.2', '0.012')
        >>> metric_named("unsat_percent_delta").written(3.0), metric_named("unsat_percent").written(None)
        ('+3.0', '–')
        """
        if value is None:
            return "–"
        digits = (3 if abs(value) < 1 else 2 if abs(value) < 10 else 1) if self.is_time else 1
        text = f"{value:{'+' if self.is_delta else ''}.{digits}f}"
        return re.sub(r"^[-+](0\.0+)$", r"\1", text)

    def better(self, one: float, other: float) -> bool:
        """Whether ``one`` is better than ``other``."""
        return one > other if self.higher_is_better else one < other


_METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "test_acc_percent",
            "Test accuracy %",
            r"Test Acc.\,\%",
            "accuracy",
            "Accuracy %",
            "test images that are classified correctly",
        ),
        Metric("unsat_percent", "UNSAT %", r"UNSAT\,\%", "UNSAT", "Proved %", "properties that are proved"),
        Metric(
            "stable_percent",
            "Stable %",
            r"Stable\,\%",
            "Stable",
            "Stable neurons %",
            "ReLU neurons that are proved to be always on or always off, on average over the properties",
        ),
        Metric(
            "stable_ibp_percent",
            "Stable % (ibp)",
            r"Stable\,\% (ibp)",
            "Stable (ibp)",
            "Stable neurons % by IBP",
            "the same by interval bounds (IBP), on average over test images",
        ),
        Metric(
            "time_s",
            "Time (s)",
            "Time (s)",
            "1/Time",
            "Seconds per property",
            "mean time per property",
            higher_is_better=False,
        ),
        Metric(
            "time_unsat_timeout_s",
            "Time_U+T (s)",
            r"Time$_\mathrm{U+T}$ (s)",
            "1/Time_U+T",
            "Seconds per proof or time-out",
            "mean time per property that was proved (UNSAT) or timed out",
            higher_is_better=False,
        ),
        Metric(
            TRAINING_MINUTES,
            "Training (CPU min)",
            "Training (CPU min)",
            "1/Training",
            "Training, CPU minutes",
            "CPU minutes of all training steps, without validation",
            higher_is_better=False,
            is_quality=False,
        ),
    )
}
_ATTACK = re.compile(r"pgd(\d+)_percent")


def metric_named(name: str) -> Metric:
    """The metric with this name.

    >>> metric_named("pgd100_percent").label, metric_named("time_s_delta").higher_is_better
    ('PGD-100 %', False)
    """
    base, is_delta = name.removesuffix(DELTA), name.endswith(DELTA)
    attack = _ATTACK.fullmatch(base)
    if attack:
        steps = attack[1]
        meaning = f"test images that are still classified correctly under a PGD attack of {steps} steps"
        latex = rf"PGD$_{{{steps}}}$\,\%"
        words = f"Under attack % ({steps} steps)"
        return Metric(name, f"PGD-{steps} %", latex, f"PGD-{steps}", words, meaning, is_delta=is_delta)
    return replace(_METRICS[base], name=name, is_delta=is_delta)


def is_shown(name: str) -> bool:
    """Whether a metric has lines of its own in a table. Counts do not: they stand beside their percentages.

    >>> is_shown("unsat_percent"), is_shown("n_unsat"), is_shown("pgd50_percent_delta")
    (True, False, True)
    """
    base = name.removesuffix(DELTA)
    return base in _METRICS or _ATTACK.fullmatch(base) is not None


def sort_key(name: str) -> tuple[int, int]:
    """The position of a metric in a table: the order of the paper, then attacks by their number of steps."""
    base = name.removesuffix(DELTA)
    attack = _ATTACK.fullmatch(base)
    return (len(_METRICS), int(attack[1])) if attack else (list(_METRICS).index(base), 0)


def radius(eps: float | None) -> str:
    """A radius as the paper writes it.

    >>> radius(0.1), radius(2 / 255), radius(None)
    ('0.1', '2/255', '')
    """
    return "" if eps is None else written_radius(eps)
