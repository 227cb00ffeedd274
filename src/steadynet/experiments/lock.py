"""One process at a time works on an experiment's directory; the lock of a killed one is gone with it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from steadynet.errors import UserError
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.files import disk_errors

if sys.platform != "win32":  # where nothing is locked
    import fcntl


PATIENCE = 3.0  # seconds for the workers of a killed process to end


@contextmanager
def locked(experiment: ExperimentDirectory, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock, or say that somebody else does."""
    root = experiment.path
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        file = experiment.lock.open("w")
    with file:
        end = time.monotonic() + patience
        while not _taken(file):
            if time.monotonic() > end:
                raise UserError(f"another steadynet is at work on {root}: see steadynet status {root}")
            time.sleep(0.05)
        yield


def _taken(file: TextIO) -> bool:
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def is_locked(experiment: ExperimentDirectory) -> bool:
    """Whether somebody is at work."""
    try:
        with locked(experiment, patience=0):
            return False
    except UserError:
        return True
