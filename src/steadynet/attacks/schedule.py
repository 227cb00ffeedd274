"""The lengths of an attack's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadynet.errors import UserError

# The search ``fast``: its steps as shares of the current radius, and its momentum. The first step reaches a corner of
# the box from anywhere, and the others correct it. It finds at least what the paper's ten equal steps find
# (``benchmarks/inner_search.py``); without momentum, it would find less on a network that has not learned anything yet.
FAST_SHARES, FAST_MOMENTUM = (2.0, 1.0, 0.5), 0.5


@dataclass(frozen=True)
class StepSchedule:
    """The length of each step of an attack, in pixel values.

    Args:
        lengths: The length of each step.
        momentum: The share of the earlier gradients that is added to each new one; 0 for none.

    >>> StepSchedule.equal(3, 0.1).lengths
    (0.1, 0.1, 0.1)
    >>> StepSchedule.fast(radius=0.2)
    StepSchedule(lengths=(0.4, 0.2, 0.1), momentum=0.5)
    """

    lengths: tuple[float, ...]
    momentum: float = 0.0

    @classmethod
    def equal(cls, steps: int, length: float) -> StepSchedule:
        """Return steps that all have one length."""
        return cls((length,) * steps)

    @classmethod
    def dropping(cls, steps: int, length: float, drops: Sequence[float]) -> StepSchedule:
        """Return steps that become ten times shorter after each of these shares of the steps.

        >>> [round(length, 4) for length in StepSchedule.dropping(4, 0.1, (0.5, 0.75)).lengths]
        [0.1, 0.1, 0.01, 0.001]
        """
        fallen = [sum(step / steps >= drop for drop in drops) for step in range(steps)]
        return cls(tuple(length * 0.1**count for count in fallen))

    @classmethod
    def fast(cls, radius: float) -> StepSchedule:
        """Return the three decaying steps of the search ``fast``."""
        return cls(tuple(share * radius for share in FAST_SHARES), FAST_MOMENTUM)

    @classmethod
    def in_shares(cls, shares: Sequence[float], radius: float) -> StepSchedule:
        """Return steps whose lengths are shares of a radius, without momentum.

        Raises:
            UserError: There is no share, or one is not larger than 0.

        >>> StepSchedule.in_shares((1.0, 0.5), radius=0.2).lengths
        (0.2, 0.1)
        """
        if not shares or not all(share > 0 for share in shares):
            raise UserError(f"search = {list(shares)}: a list of steps holds shares of ε, each larger than 0")
        return cls(tuple(share * radius for share in shares))
