"""Which process of a training this is, read from the environment variables that ``torchrun`` sets."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

HEAD_START = 10.0  # seconds that rank 0 has to print an error before any other rank prints one
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class ProcessRank:
    """The place of this process among the processes of one training, in PyTorch's words.

    Attributes:
        rank: The number of this process; the first is 0.
        world_size: The number of processes.
        local_rank: The number of this process among those of its own machine.
        local_world_size: The number of processes on its own machine.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0


def this_process() -> ProcessRank:
    """Return the rank of this process: 0 of 1, unless ``torchrun`` started several processes."""
    rank, world_size, *address = (os.environ.get(name, "") for name in NEEDED)
    if not (all(address) and rank.isdigit() and world_size.isdigit() and int(world_size) > 1):
        return ProcessRank()
    return ProcessRank(
        rank=int(rank),
        world_size=int(world_size),
        local_rank=_number("LOCAL_RANK", default=0),
        local_world_size=_number("LOCAL_WORLD_SIZE", default=1),
    )


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else default


def wait_for_rank_zero(seconds: float | None = None) -> str:
    """Let rank 0 print its error message first, and return the prefix for a message of this process.

    An error usually occurs in all processes at once, and one message is enough. Rank 0 prints it at once, without a
    prefix. The other ranks wait here, and ``torchrun`` ends them as soon as rank 0 has exited. A rank that still exists
    after the wait has an error of its own. It prints it with a prefix that names the process.

    Args:
        seconds: How long to wait; ``HEAD_START`` unless given.
    """
    process = this_process()
    if process.is_rank_zero:
        return ""
    time.sleep(HEAD_START if seconds is None else seconds)
    return f"process {process.rank} of {process.world_size}: "
