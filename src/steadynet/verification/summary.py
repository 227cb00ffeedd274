"""Summaries of verdicts: the paper's figures for one radius, and for a whole verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from steadynet.verification.guarantees import GuaranteeCount
from steadynet.verification.properties import DecidedBy, Verdict
from steadynet.verification.verdicts import Row


@dataclass(frozen=True)
class VerdictCounts:
    """How many properties have each verdict.

    >>> VerdictCounts.of([Verdict.UNSAT, Verdict.SAT, Verdict.UNSAT]).count(Verdict.UNSAT)
    2
    """

    unsat: int
    sat: int
    timeout: int
    unknown: int
    error: int

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> VerdictCounts:
        """Count the verdicts."""
        found = Counter(verdicts)
        return VerdictCounts(**{verdict.value: found[verdict] for verdict in Verdict})

    def count(self, verdict: Verdict) -> int:
        """Return how many properties have this verdict."""
        number: int = getattr(self, verdict.value)
        return number


@dataclass(frozen=True)
class VerdictSummary(VerdictCounts):
    """The paper's figures for some decided properties. A mean over no property is None.

    Args:
        properties: How many properties there are.
        misclassified: How many of the refuted ones have an image that gets another label itself.
        unsat_share: The share of properties that are proved.
        stable_share: The mean share of stable ReLUs, over the properties where it was measured.
        stable_properties: How many properties that mean is over.
        stable_method: The bounds that stability was measured by, for example ``"crown"``.
        time: The mean time of a property in seconds ("Time" in the paper).
        time_unsat_timeout: The mean time of the proved properties and the time-outs ("Time_U+T" in the paper).
    """

    properties: int
    misclassified: int
    unsat_share: float | None
    stable_share: float | None
    stable_properties: int
    stable_method: str | None
    time: float | None
    time_unsat_timeout: float | None


@dataclass(frozen=True)
class RadiusSummary:
    """The figures for one radius: those of the verdicts, and how many images keep their label under PGD."""

    eps: float
    verdicts: VerdictSummary
    pgd_steps: int
    pgd_kept: int


@dataclass(frozen=True)
class VerificationSummary:
    """The figures of a whole verification, one entry per radius, and how they were measured."""

    run: str
    data: str
    verifier: str
    timeout: float
    settings: str
    verdicts_file: str
    radii: tuple[RadiusSummary, ...]
    reasons: dict[str, int]  # why there is no verdict, and how often
    guarantees: tuple[GuaranteeCount, ...] = ()  # what the proofs and the counterexamples rest on, and how many

    def to_json(self) -> dict[str, Any]:
        """Return the summary as ``steadynet verify --json`` prints it."""
        content = asdict(self)
        content["radii"] = [
            {"eps": radius.eps, **asdict(radius.verdicts), "pgd_steps": radius.pgd_steps, "pgd_kept": radius.pgd_kept}
            for radius in self.radii
        ]
        return {"verdicts" if name == "verdicts_file" else name: value for name, value in content.items()}


def summarise(rows: Sequence[Row]) -> VerdictSummary:
    """Summarise the decided properties of one radius."""
    stable = [row.stable_share for row in rows if row.stable_share is not None]
    unsat_or_timeout = [row.seconds for row in rows if row.verdict in (Verdict.UNSAT, Verdict.TIMEOUT)]
    return VerdictSummary(
        **vars(VerdictCounts.of(row.verdict for row in rows)),
        properties=len(rows),
        misclassified=sum(row.decided_by == DecidedBy.MISCLASSIFIED for row in rows),
        unsat_share=_mean([row.verdict is Verdict.UNSAT for row in rows]),
        stable_share=_mean(stable),
        stable_properties=len(stable),
        stable_method="+".join(sorted({row.stable_method for row in rows if row.stable_method})) or None,
        time=_mean([row.seconds for row in rows]),
        time_unsat_timeout=_mean(unsat_or_timeout),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
