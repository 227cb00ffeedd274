"""Who is still open, what each property has cost, and every decision: the only place that gives verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.verification.properties import Properties, Result, Verdict, is_counterexample
from steadynet.verification.search.time_accounting import Clock


class Ledger:
    """The books of a search over some properties: all time is charged, each property is decided once."""

    def __init__(self, properties: Properties, timeout: float, on_result: Callable[[int, Result], None]) -> None:
        self.properties, self.on_result = properties, on_result
        self.clock = Clock(len(properties), timeout)
        self.open = set(range(len(properties)))
        self.stable: list[float | None] = [None] * len(properties)
        self.subproblems = [0] * len(properties)
        self._untold: dict[int, Result] = {}  # decided since the last charge: they still pay their share of it

    def prove(self, index: int, margin: float, by: str) -> None:
        """No input of the region gets another label: every margin has a lower bound of at least ``margin`` > 0."""
        self._decide(index, Verdict.UNSAT, by, margin=margin)

    def refute(self, index: int, point: Tensor, by: str) -> bool:
        """Whether the point is a counterexample: then that is the verdict."""
        if index not in self.open or not is_counterexample(self.properties, index, point):
            return False
        self._decide(index, Verdict.SAT, by, point=point)
        return True

    def fail(self, index: int, reason: str, by: str) -> None:
        """The property cannot be decided, and this is why."""
        self._decide(index, Verdict.ERROR, by, reason=reason)

    def charge(self, served: Iterable[int] = ()) -> None:
        """Charge the time since the last charge to those served (else to all it can have served).

        Then end those out of time, and tell of what was decided meanwhile, with the time it has been charged.
        """
        self.clock.charge(list(served) or sorted(self.open | self._untold.keys()))
        for index in sorted(self.open):
            if self.clock.is_over(index):
                self._decide(index, Verdict.TIMEOUT, "time-out")
        self.tell()

    def tell(self) -> None:
        """Tell of what is decided."""
        while self._untold:
            index = next(iter(self._untold))
            result = self._untold.pop(index)
            share = self.stable[index]
            method = None if share is None else "crown"
            told = replace(result, seconds=self.clock.seconds[index], stable_share=share, stable_method=method)
            self.on_result(index, told)

    def still_open(self, owners: Tensor) -> Tensor:
        """Which of these owners are not decided; a boolean mask."""
        return torch.tensor([owner in self.open for owner in owners.tolist()], dtype=torch.bool, device=owners.device)

    def out_of_time(self, served: list[int]) -> Callable[[], bool]:
        """A question for inner loops: has one of those served had its time?"""
        shares = self.clock.shares(served)
        return lambda: self.clock.is_over_now(shares)

    def _decide(
        self,
        index: int,
        verdict: Verdict,
        by: str,
        *,
        point: Tensor | None = None,
        margin: float | None = None,
        reason: str = "",
    ) -> None:
        if index not in self.open:
            return
        self.open.discard(index)
        self._untold[index] = Result(
            verdict,
            self.clock.seconds[index],
            None if point is None else point.clone(),
            margin,
            subproblems=self.subproblems[index],
            decided_by=by,
            reason=reason,
        )
