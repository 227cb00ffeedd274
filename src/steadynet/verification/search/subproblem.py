"""A subproblem: one margin of one property, with some ReLU signs fixed."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor


class Split(NamedTuple):
    """One ReLU held on one side: its layer, its element there, the sign of its input, and its multiplier β.

    The input of a sigmoid or tanh is held on one side of ``at``, above it for the sign +1.
    """

    position: int
    element: int
    sign: int
    beta: float = 0.0
    at: float = 0.0

    def replaces(self, other: Split) -> bool:
        """Whether this split holds the same neuron on the same side as another one, which is then of no more use."""
        return self[:3] == other[:3]


@dataclass(frozen=True)
class Subproblem:
    """Is one margin of one property positive wherever the splits hold?

    Attributes:
        owner: the property.
        margin: the margin.
        lower: a lower bound of the margin where the splits hold.
        splits: the ReLUs whose sign is fixed.
        slopes: the lower slopes (half precision) that its parent ended with.
    """

    owner: int
    margin: int
    lower: float
    splits: tuple[Split, ...] = ()
    slopes: dict[int, Tensor] = field(default_factory=dict)

    def child(self, split: Split, lower: float) -> Subproblem:
        """The part of this subproblem on one side of a ReLU."""
        kept = tuple(known for known in self.splits if not split.replaces(known))
        return Subproblem(self.owner, self.margin, max(self.lower, lower), (*kept, split), self.slopes)


class Queue:
    """Open subproblems of many properties. Properties take turns; each gives its worst bound first.

    The property that has had the fewest subproblems is served next, so that a hard one does not keep an easy one
    waiting. Past ``capacity`` the newest subproblems come first: searching depth first, the queue hardly grows, and
    memory stays bounded.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._open: dict[int, list[tuple[float, int, Subproblem]]] = {}
        self._taken: dict[int, int] = {}
        self._count = 0

    def push(self, subproblems: Iterable[Subproblem]) -> None:
        """Add open subproblems."""
        crowded = len(self) >= self.capacity
        for subproblem in subproblems:
            self._count += 1
            rank = -math.inf if crowded else subproblem.lower
            entry = (rank, -self._count, subproblem)  # of equals the newest, which is the deepest
            heapq.heappush(self._open.setdefault(subproblem.owner, []), entry)

    def pop(self, count: int, limit: int | None = None, among: Set[int] | None = None) -> list[Subproblem]:
        """Up to ``count`` subproblems for one batch, of properties that have had fewer than ``limit``; all or some."""
        result: list[Subproblem] = []
        while len(result) < count:
            owners = [owner for owner in self._open if among is None or owner in among]
            if not owners:
                break
            owner = min(owners, key=lambda name: self._taken.get(name, 0))
            taken = self._taken.get(owner, 0)
            if limit is not None and taken >= limit:
                break
            self._taken[owner] = taken + 1
            result.append(heapq.heappop(self._open[owner])[2])
            if not self._open[owner]:
                del self._open[owner]
        return result

    def drop(self, owner: int, margin: int | None = None) -> None:
        """Forget a property that is decided, or one margin of it."""
        left = [entry for entry in self._open.pop(owner, []) if margin not in (None, entry[2].margin)]
        if left:
            heapq.heapify(left)
            self._open[owner] = left

    def open_of(self, owner: int) -> int:
        """How many open subproblems a property has."""
        return len(self._open.get(owner, ()))

    def owners(self) -> set[int]:
        """Properties with open subproblems."""
        return set(self._open)

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def __iter__(self) -> Iterator[Subproblem]:
        return (entry[2] for entries in self._open.values() for entry in entries)
