"""What verdicts guarantee, counted and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from steadynet.graph.rounding import Arithmetic
from steadynet.verification.properties import Guarantee, Verdict

_ARITHMETIC = {
    Arithmetic.FLOAT32: "proved for float32 execution in any order of summation",
    Arithmetic.EXACT: "proved in exact arithmetic",
}


class Stated(Protocol):
    """A result or a stored row: a verdict that says what it rests on."""

    @property
    def verdict(self) -> Verdict: ...  # noqa: D102
    @property
    def arithmetic(self) -> Arithmetic | None: ...  # noqa: D102
    @property
    def guarantee(self) -> Guarantee | None: ...  # noqa: D102


@dataclass(frozen=True)
class GuaranteeCount:
    """How many proofs or counterexamples have the same arithmetic and guarantee."""

    verdict: Verdict
    arithmetic: Arithmetic | None
    guarantee: Guarantee | None
    count: int


def count_guarantees(results: Iterable[Stated]) -> tuple[GuaranteeCount, ...]:
    """Count the proofs and the counterexamples by what they guarantee, proofs first."""
    found = Counter((result.verdict, result.arithmetic, result.guarantee) for result in results)
    counts = [GuaranteeCount(*kind, count) for kind, count in found.most_common()]
    return tuple(entry for verdict in (Verdict.UNSAT, Verdict.SAT) for entry in counts if entry.verdict is verdict)


def describe_guarantee(result: Stated) -> str:
    """Say in words what one verdict guarantees; nothing for a property that is not decided.

    >>> from steadynet.verification.properties import Result
    >>> describe_guarantee(Result(Verdict.UNSAT, 0.1, arithmetic=Arithmetic.EXACT, guarantee=Guarantee.TOOL))
    'proved in exact arithmetic (guarantee: tool)'
    """
    if result.verdict is Verdict.SAT:
        return f"the counterexample replays (guarantee: {Guarantee.REPLAYED})"
    if result.verdict is not Verdict.UNSAT:
        return ""
    if result.arithmetic is None or result.guarantee is None:
        return "proved by an older version, which did not say what it guarantees"
    return f"{_ARITHMETIC[result.arithmetic]} (guarantee: {result.guarantee})"


def describe_proofs(counts: Sequence[GuaranteeCount]) -> str:
    """Say in one line what the proofs among some results guarantee; nothing if there are none.

    >>> checked = GuaranteeCount(Verdict.UNSAT, Arithmetic.FLOAT32, Guarantee.CHECKED, 3)
    >>> describe_proofs([checked])
    'unsat: proved for float32 execution in any order of summation (guarantee: checked)'
    """
    proofs = [entry for entry in counts if entry.verdict is Verdict.UNSAT]
    if not proofs:
        return ""
    if len(proofs) == 1:
        return f"unsat: {describe_guarantee(proofs[0])}"
    return "unsat: " + "; ".join(f"{entry.count} {describe_guarantee(entry)}" for entry in proofs)
