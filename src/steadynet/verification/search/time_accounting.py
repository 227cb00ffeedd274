"""Who pays for the time: every moment of a shared computation is charged to the properties it served."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable


class Clock:
    """Charges elapsed time to properties, so that their times add up to the wall time.

    >>> clock = Clock(2, timeout=60)
    >>> clock.charge([0, 0, 1])
    >>> clock.seconds[0] == 2 * clock.seconds[1]
    True
    """

    def __init__(self, properties: int, timeout: float) -> None:
        self.seconds = [0.0] * properties
        self.timeout = timeout
        self._last = time.perf_counter()

    def charge(self, served: Iterable[int]) -> None:
        """Share the time since the last charge among those served; one that is named twice pays twice."""
        now = time.perf_counter()
        payers = list(served)
        for payer in payers:
            self.seconds[payer] += (now - self._last) / len(payers)
        if payers:
            self._last = now

    def pending(self) -> float:
        """Seconds since the last charge."""
        return time.perf_counter() - self._last

    def is_over(self, payer: int) -> bool:
        """Whether a property has had its time."""
        return self.seconds[payer] >= self.timeout

    def shares(self, served: list[int]) -> dict[int, float]:
        """The share of a computation that each property it serves will be charged."""
        return {payer: count / len(served) for payer, count in Counter(served).items()}

    def is_over_now(self, shares: dict[int, float]) -> bool:
        """Whether a property served by the computation under way has had its time, with its share of it."""
        pending = self.pending()
        return any(self.seconds[payer] + share * pending >= self.timeout for payer, share in shares.items())
