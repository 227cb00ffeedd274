"""Which of several processes of one training this is, as ``torchrun`` says it in the environment."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

TO_SPEAK = 3.0  # seconds in which the first process says what is wrong, before another one does
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Rank:
    """The number of this process, of how many, and its number among those of its own machine."""

    number: int = 0
    count: int = 1
    local: int = 0
    local_count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.number == 0


def this_process() -> Rank:
    """The rank of this process; the only one where ``torchrun`` did not start several."""
    facts = [os.environ.get(name, "") for name in NEEDED]
    if not (all(facts) and facts[0].isdigit() and facts[1].isdigit() and int(facts[1]) > 1):
        return Rank()
    number, count = int(facts[0]), int(facts[1])
    return Rank(number, count, *(_number(*fact) for fact in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))))


def _number(name: str, otherwise: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else otherwise


def give_way(seconds: float = TO_SPEAK) -> str:
    """How this process begins what it says at its end: the first one at once, with nothing.

    What one process finds wrong, all do. So the others wait, and ``torchrun`` ends them once the first one has spoken;
    one that is still there has found something of its own, and says which it is.
    """
    rank = this_process()
    if rank.is_first:
        return ""
    time.sleep(seconds)
    return f"process {rank.number} of {rank.count}: "
