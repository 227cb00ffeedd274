"""What became of one mutated file. It imports nothing heavy, so that a process can start quickly."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """How a reader dealt with a file."""

    REFUSED = "refused"  # an error of one line
    READ = "read"  # and what was read is what the file says
    WRONG = "wrong"  # another error, or a wrong reading
    HUNG = "hung"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Outcome:
    """The kind of an outcome, and for a failure what went wrong."""

    kind: Kind
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether the reader is at fault."""
        return self.kind not in (Kind.REFUSED, Kind.READ)


READY = "ready"  # what a worker sends once it has started
