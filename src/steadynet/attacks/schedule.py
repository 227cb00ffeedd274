"""The lengths of an attack's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadynet.errors import UserError

# The steps of the search ``fast``, as shares of the current radius. ``benchmarks/inner_search.py`` compares them with
# others: they find at least what the paper's ten equal steps find.
FAST = (1.0, 0.5, 0.25)


@dataclass(frozen=True)
class StepSchedule:
    """The length of each step of an attack, in pixel values.

    >>> StepSchedule.equal(3, 0.1).lengths
    (0.1, 0.1, 0.1)
    >>> StepSchedule.in_shares((1.0, 0.5, 0.25), radius=0.2).lengths
    (0.2, 0.1, 0.05)
    """

    lengths: tuple[float, ...]

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
    def in_shares(cls, shares: Sequence[float], radius: float) -> StepSchedule:
        """Return steps whose lengths are shares of a radius.

        Raises:
            UserError: There is no share, or one is not larger than 0.
        """
        if not shares or not all(share > 0 for share in shares):
            raise UserError(f"search = {list(shares)}: a list of steps holds shares of ε, each larger than 0")
        return cls(tuple(share * radius for share in shares))
