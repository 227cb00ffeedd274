"""The verdicts of a search: which properties are open, what each has cost, and every decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.verification.properties import DecidedBy, Properties, Result, Verdict, is_counterexample
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.hints import ProofHints
from steadynet.verification.search.time_accounting import TimeAccounts


class Decisions:
    """Decides each property once, and charges all time of the search to properties. Only this class gives verdicts.

    Attributes:
        open: the properties that are not decided yet.
        time: what each property has been charged.
        stable: per property, the share of its stable ReLUs if it is known.
        subproblems: per property, how many subproblems were bounded.
        hints: per property, what a proof of it can be made from; None if nobody wants proofs.
        verdicts: the verdicts so far, by property.
    """

    def __init__(self, properties: Properties, budget: Budget, on_result: Callable[[int, Result], None]) -> None:
        self.properties, self.budget, self.on_result = properties, budget, on_result
        self.time = TimeAccounts(len(properties), budget.timeout, budget.now)
        self.open = set(range(len(properties)))
        self.stable: list[float | None] = [None] * len(properties)
        self.subproblems = [0] * len(properties)
        self.hints = [ProofHints() for _ in range(len(properties))] if budget.hints else None
        self.verdicts: dict[int, Verdict] = {}
        self._unreported: dict[int, Result] = {}  # decided since the last charge, which they still share

    def prove(self, index: int, margin: float, by: DecidedBy) -> None:
        """Decide that no input of the region gets another label: every margin is at least ``margin`` > 0."""
        self._decide(index, Verdict.UNSAT, by, margin=margin)

    def refute(self, index: int, point: Tensor, by: DecidedBy) -> bool:
        """Replay a point; if it is a counterexample, that is the verdict. Returns whether it is one."""
        if index not in self.open or not is_counterexample(self.properties, index, point):
            return False
        self._decide(index, Verdict.SAT, by, point=point)
        return True

    def give_up(self, index: int, reason: str, by: DecidedBy) -> None:
        """Decide that the property cannot be decided, and say why."""
        self._decide(index, Verdict.UNKNOWN, by, reason=reason)

    def of_open(self) -> Decisions:
        """Return decisions on the open properties alone, numbered anew, each with the time that it was charged."""
        kept = sorted(self.open)
        part = self.properties[torch.tensor(kept, dtype=torch.long, device=self.properties.labels.device)]
        rest = Decisions(part, self.budget, lambda index, result: self.on_result(kept[index], result))
        rest.time = self.time.of(kept)
        return rest

    def charge(self, served: Iterable[int] = ()) -> None:
        """Charge the time since the last charge to the properties that it served, by default to all it can have served.

        Then end the properties whose time is over, and report what was decided meanwhile with its time.
        """
        self.time.charge(list(served) or sorted(self.open | self._unreported.keys()))
        for index in sorted(self.open):
            if self.time.is_over(index):
                self._decide(index, Verdict.TIMEOUT, DecidedBy.TIMEOUT)
        self.report()

    def report(self) -> None:
        """Pass every decision that was not reported yet to ``on_result``."""
        while self._unreported:
            index = next(iter(self._unreported))
            result = self._unreported.pop(index)
            share = self.stable[index]
            method = None if share is None else "crown"
            timed = replace(result, seconds=self.time.seconds[index], stable_share=share, stable_method=method)
            self.on_result(index, timed)

    def still_open(self, owners: Tensor) -> Tensor:
        """Which of these properties are not decided; a mask."""
        return torch.tensor([owner in self.open for owner in owners.tolist()], dtype=torch.bool, device=owners.device)

    def out_of_time(self, served: list[int]) -> Callable[[], bool]:
        """A function for inner loops that says whether one of the properties served has used up its time."""
        shares = self.time.shares(served)
        return lambda: self.time.is_over_now(shares)

    def _decide(
        self,
        index: int,
        verdict: Verdict,
        by: DecidedBy,
        *,
        point: Tensor | None = None,
        margin: float | None = None,
        reason: str = "",
    ) -> None:
        if index not in self.open:
            return
        self.open.discard(index)
        self.verdicts[index] = verdict
        self._unreported[index] = Result(
            verdict,
            self.time.seconds[index],
            None if point is None else point.clone(),
            margin,
            subproblems=self.subproblems[index],
            decided_by=by,
            reason=reason,
            hints=self.hints[index] if self.hints and verdict is Verdict.UNSAT else None,
        )
