"""A lock that lets only one process at a time work on an experiment; it is free again when that process ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from steadynet.errors import UserError
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.files import disk_errors

PATIENCE = 3.0  # seconds to wait for a process that is about to end
LOOK_EVERY = 0.05  # seconds


@contextmanager
def locked(experiment: ExperimentDirectory, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock of an experiment inside a ``with`` block.

    Args:
        experiment: The directory, which is created if it is missing.
        patience: How many seconds to wait for another process to free the lock.

    Raises:
        UserError: Another process holds the lock, or the directory cannot be written.
    """
    lock = FileLock(experiment.lock)
    with disk_errors(experiment.path):
        experiment.path.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=patience, poll_interval=LOOK_EVERY)
        except Timeout as error:
            place = experiment.path
            raise UserError(f"another steadynet is at work on {place}: see steadynet status {place}") from error
    try:
        yield
    finally:
        lock.release()


def is_locked(experiment: ExperimentDirectory) -> bool:
    """Whether a process is at work on the experiment."""
    try:
        with locked(experiment, patience=0):
            return False
    except UserError:
        return True
