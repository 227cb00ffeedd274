"""Time accounting: every moment of a shared computation is charged to the properties that it served."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence


class TimeAccounts:
    """Charges elapsed time to properties, so that their times add up to the time of the search.

    >>> accounts = TimeAccounts(2, timeout=60)
    >>> accounts.charge([0, 0, 1])
    >>> accounts.seconds[0] == 2 * accounts.seconds[1]
    True
    """

    def __init__(self, properties: int, timeout: float, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = [0.0] * properties
        self.timeout = timeout
        self._now = now
        self._last = now()

    def of(self, kept: Sequence[int]) -> TimeAccounts:
        """Return the accounts of some properties, numbered anew; the time since the last charge is theirs to pay."""
        part = TimeAccounts(len(kept), self.timeout, self._now)
        part.seconds, part._last = [self.seconds[payer] for payer in kept], self._last
        return part

    def charge(self, served: Iterable[int]) -> None:
        """Share the time since the last charge among the properties served; one that is named twice pays twice."""
        now = self._now()
        payers = list(served)
        for payer in payers:
            self.seconds[payer] += (now - self._last) / len(payers)
        if payers:
            self._last = now

    def pending(self) -> float:
        """Seconds since the last charge."""
        return self._now() - self._last

    def left(self, payer: int) -> float:
        """Seconds that a property may still be charged."""
        return self.timeout - self.seconds[payer]

    def is_over(self, payer: int) -> bool:
        """Whether a property has used up its time."""
        return self.seconds[payer] >= self.timeout

    def shares(self, served: list[int]) -> Mapping[int, float]:
        """The share of the running computation that each property it serves will be charged."""
        return {payer: count / len(served) for payer, count in Counter(served).items()}

    def is_over_now(self, shares: Mapping[int, float]) -> bool:
        """Whether a property has used up its time, counting its share of the running computation."""
        pending = self.pending()
        return any(self.seconds[payer] + share * pending >= self.timeout for payer, share in shares.items())
