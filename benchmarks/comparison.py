"""The arithmetic of comparing two verifiers on the same properties: what both decide, sums, means, contradictions."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DECIDED = ("unsat", "sat")
LEAST_SECONDS = 1e-3  # a shorter time counts as this long, so that no ratio rests on the clock's resolution


@dataclass(frozen=True)
class Measurement:
    """What a verifier said of one property, and the CPU seconds it took."""

    verdict: str
    seconds: float

    @property
    def is_decided(self) -> bool:
        """Whether the verdict is a proof or a counterexample."""
        return self.verdict in DECIDED


@dataclass(frozen=True)
class Comparison:
    """Two verifiers on one set of properties, ours and a peer, each measurement beside the other's.

    >>> ours = [Measurement("unsat", 1.0), Measurement("sat", 2.0), Measurement("timeout", 60.0)]
    >>> theirs = [Measurement("unsat", 8.0), Measurement("sat", 4.0), Measurement("unsat", 5.0)]
    >>> comparison = Comparison("M1", "peer", ours, theirs)
    >>> comparison.both, comparison.total_ratio, comparison.geometric_mean
    ([0, 1], 4.0, 4.0)
    """

    name: str
    peer: str
    ours: Sequence[Measurement]
    theirs: Sequence[Measurement]

    def __post_init__(self) -> None:
        if len(self.ours) != len(self.theirs):
            raise ValueError(f"{self.name}: {len(self.ours)} measurements of ours, {len(self.theirs)} of {self.peer}")

    @property
    def both(self) -> list[int]:
        """The properties that both decide, whether or not they agree."""
        pairs = enumerate(zip(self.ours, self.theirs, strict=True))
        return [index for index, (one, other) in pairs if one.is_decided and other.is_decided]

    @property
    def contradictions(self) -> list[int]:
        """The properties that one proves and the other refutes."""
        return [index for index in self.both if self.ours[index].verdict != self.theirs[index].verdict]

    @property
    def totals(self) -> tuple[float, float]:
        """The seconds of ours and of the peer on what both decide."""
        return (
            sum(_at_least(self.ours[index].seconds) for index in self.both),
            sum(_at_least(self.theirs[index].seconds) for index in self.both),
        )

    @property
    def total_ratio(self) -> float | None:
        """The peer's seconds divided by ours, on what both decide; None if there is nothing."""
        ours, theirs = self.totals
        return theirs / ours if self.both else None

    @property
    def geometric_mean(self) -> float | None:
        """The geometric mean of the ratios of single properties, on what both decide; None if there is nothing."""
        logarithms = [
            math.log(_at_least(self.theirs[index].seconds) / _at_least(self.ours[index].seconds)) for index in self.both
        ]
        return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def _at_least(seconds: float) -> float:
    return max(seconds, LEAST_SECONDS)


COLUMNS = (
    "set", "properties", "decided, ours", "peer", "decided, peer", "decided by both", "s, ours", "s, peer",
    "peer / ours", "geometric mean", "contradictions",
)  # fmt: skip


def markdown(comparisons: Sequence[Comparison]) -> str:
    """Return the comparisons as a Markdown table, one row per set and peer."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, comparisons)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(comparison: Comparison) -> tuple[str, ...]:
    ours, theirs = comparison.totals
    return (
        comparison.name,
        str(len(comparison.ours)),
        str(sum(one.is_decided for one in comparison.ours)),
        comparison.peer,
        str(sum(one.is_decided for one in comparison.theirs)),
        str(len(comparison.both)),
        f"{ours:.2f}",
        f"{theirs:.2f}",
        _ratio(comparison.total_ratio),
        _ratio(comparison.geometric_mean),
        ", ".join(map(str, comparison.contradictions)) or "none",
    )


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}×"


def read_recorded(path: Path, timeout: float) -> list[Measurement]:
    """Read recorded verdicts and seconds, one row per property with the columns ``verdict`` and ``seconds``.

    A verdict that took longer than the time-out counts as a time-out: both sides have the same one.
    """
    with path.open(encoding="utf-8") as file:
        rows = [Measurement(row["verdict"], float(row["seconds"])) for row in csv.DictReader(file)]
    return [row if row.seconds <= timeout else Measurement("timeout", row.seconds) for row in rows]
