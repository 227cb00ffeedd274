"""The rule that decides whether a claim of the paper holds in our tables.

A claim compares pairs of table entries and says which entry of each pair is better. It holds if the mean advantage is
above zero and at least half of the pairs are no worse. There is not enough data if a method of the claim is missing, if
an entry rests on fewer than ``MIN_PROPERTIES`` properties, or if the proved properties differ by no more than chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from steadynet.experiments.table import DELTA
from steadynet.report.layout import Entry
from steadynet.report.metrics import Metric, metric_named

MIN_PROPERTIES = 50  # per entry, as in the paper's smallest experiments
RULE = (
    "All claims are checked by one rule. A claim compares pairs of numbers and says which number of each pair is "
    "better. It holds if the mean advantage is above zero and at least half of the pairs are no worse. There is not "
    f"enough data if a method is missing, if a network was verified on fewer than {MIN_PROPERTIES} properties, or if "
    "the difference in proved properties may be chance (95 % confidence)."
)


class Outcome(Enum):
    """What a table says about a claim. The value is the text that the report shows."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    NOT_ENOUGH_DATA = "not enough data"


@dataclass(frozen=True)
class Comparison:
    """Two entries of one metric. The claim says that ``one`` is better than ``other``.

    A difference to another method is compared with an entry of 0.
    """

    label: str
    one: Entry
    other: Entry
    properties: int  # of the two networks' property counts, the smaller one


@dataclass(frozen=True)
class ClaimPart:
    """What a claim says about one metric, and what the tables say about it."""

    text: str
    metric: Metric
    comparisons: list[Comparison]
    outcome: Outcome
    reason: str
    paper_outcome: Outcome  # the same rule, applied to the paper's own numbers


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, checked in one table."""

    name: str
    text: str
    table: str
    parts: list[ClaimPart]

    @property
    def outcome(self) -> Outcome:
        """The outcome of all parts together: the claim holds if every part holds."""
        return _joint([part.outcome for part in self.parts])

    @property
    def paper_outcome(self) -> Outcome:
        """The outcome of the same rule on the paper's own numbers."""
        return _joint([part.paper_outcome for part in self.parts])


def undecided(claim: Claim, reason: str) -> Claim:
    """The same claim without an outcome and without comparisons, for a table whose numbers mean nothing."""
    parts = [replace(part, comparisons=[], outcome=Outcome.NOT_ENOUGH_DATA, reason=reason) for part in claim.parts]
    return replace(claim, parts=parts)


def _joint(outcomes: Sequence[Outcome]) -> Outcome:
    if Outcome.DOES_NOT_HOLD in outcomes:
        return Outcome.DOES_NOT_HOLD
    if not outcomes or Outcome.NOT_ENOUGH_DATA in outcomes:
        return Outcome.NOT_ENOUGH_DATA
    return Outcome.HOLDS


def judge(
    text: str, name: str, comparisons: list[Comparison], missing: Sequence[str] = (), expect_worse: bool = False
) -> ClaimPart:
    """Decide one part of a claim.

    Args:
        text: What the claim says about the metric.
        name: The metric's name.
        comparisons: The pairs of entries that the claim is about.
        missing: Names of methods that the claim needs and the table does not have.
        expect_worse: Whether the claim says that the metric gets worse.

    Returns:
        The part with its outcome, the reason for it, and the outcome on the paper's own numbers.
    """
    metric = metric_named(name)
    sign = 1.0 if metric.higher_is_better != expect_worse else -1.0
    measured = [pair for pair in comparisons if pair.one.value is not None and pair.other.value is not None]
    gains = [gain for pair in measured if (gain := _gain(sign, pair.one.value, pair.other.value)) is not None]
    paper_gains = [gain for pair in comparisons if (gain := _gain(sign, pair.one.paper, pair.other.paper)) is not None]
    summary = _summary(gains, metric)
    gap = _gap(name, comparisons, measured, missing)
    if gap:
        outcome, reason = Outcome.NOT_ENOUGH_DATA, f"{gap}; so far {summary}" if gains else gap
    else:
        outcome, reason = _rule(gains), summary
    return ClaimPart(text, metric, comparisons, outcome, reason, _rule(paper_gains))


def _gain(sign: float, one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else sign * (one - other)


def _gap(name: str, comparisons: list[Comparison], measured: list[Comparison], missing: Sequence[str]) -> str | None:
    """Why the data are not enough to decide, or None if they are."""
    if missing or not measured:
        return f"no numbers for {', '.join(missing) or 'this'} yet"
    if len(measured) < len(comparisons):
        return f"{len(comparisons) - len(measured)} of {len(comparisons)} comparisons lack a number"
    fewest = min(pair.properties for pair in measured)
    if fewest < MIN_PROPERTIES:
        return f"only {fewest} properties per network, at least {MIN_PROPERTIES} are needed"
    is_chance = {"unsat_percent": _is_chance, f"unsat_percent{DELTA}": _is_chance_of_differences}.get(name)
    if is_chance and is_chance(measured):
        return "the difference may be chance (95 % confidence)"
    return None


def _rule(gains: Sequence[float]) -> Outcome:
    """Apply the rule to how much better each pair is than the claim needs."""
    if not gains:
        return Outcome.NOT_ENOUGH_DATA
    no_worse = sum(gain >= 0 for gain in gains)
    return Outcome.HOLDS if sum(gains) > 0 and 2 * no_worse >= len(gains) else Outcome.DOES_NOT_HOLD


def _summary(gains: Sequence[float], metric: Metric) -> str:
    if not gains:
        return ""
    unit = "s" if metric.is_time else "points"
    better, equal = sum(gain > 0 for gain in gains), sum(gain == 0 for gain in gains)
    mean = sum(gains) / len(gains)
    size = f"{abs(mean):.2f}" if abs(mean) < 1 else f"{abs(mean):.1f}"
    ties = f" (equal in {equal})" if equal else ""
    direction = "in the claimed direction" if mean >= 0 else "in the opposite direction"
    return f"as claimed in {better} of {len(gains)} comparisons{ties}, on average {size} {unit} {direction}"


def _is_chance(pairs: Sequence[Comparison]) -> bool:
    """Whether the pooled shares of proved properties differ by less than 1.96 standard errors (two-proportion test)."""
    ones, others = [pair.one for pair in pairs], [pair.other for pair in pairs]
    if any(entry.count is None or not entry.total for entry in (*ones, *others)):
        return False
    (k1, n1), (k2, n2) = (
        (sum(entry.count or 0 for entry in side), sum(entry.total or 0 for entry in side)) for side in (ones, others)
    )
    pooled = (k1 + k2) / (n1 + n2)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n1 + 1 / n2))
    return abs(k1 / n1 - k2 / n2) <= 1.96 * error


def _is_chance_of_differences(pairs: Sequence[Comparison]) -> bool:
    """The same for differences of shares. The shares are not known here, so their largest standard error counts."""
    known = [(pair.one.value, pair.one.total) for pair in pairs if pair.one.value is not None and pair.one.total]
    total = sum(count for _, count in known)
    if not total:
        return False
    mean = sum(value * count for value, count in known) / total / 100
    return abs(mean) <= 1.96 * math.sqrt(0.25 * 2 / total)
