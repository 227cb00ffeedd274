"""One process at a time works on an experiment's directory; the lock of a killed one is gone with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steadynet.errors import UserError
from steadynet.run_directory import disk_errors

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows, where nothing is locked)
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the lock, or say that somebody else does."""
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        file = (root / ".lock").open("w")
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UserError(f"another steadynet is at work on {root}: see steadynet status {root}") from error
        yield


def is_locked(root: Path) -> bool:
    """Whether somebody is at work."""
    try:
        with locked(root):
            return False
    except UserError:
        return True
