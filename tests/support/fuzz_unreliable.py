"""A fuzzing worker that hangs and crashes, to test that both are noticed."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection

from fuzz_outcomes import READY, Kind, Outcome


def hang_or_crash(numbers: range, pipe: Connection) -> None:
    """Hang at file 1, crash at file 2."""
    pipe.send(READY)
    for number in numbers:
        if number == 1:
            time.sleep(60)
        if number == 2:
            os._exit(3)
        pipe.send(Outcome(Kind.READ))
