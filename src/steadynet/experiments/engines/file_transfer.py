"""Copies of files for tasks that share no file system: the inputs go to the task, its results come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from steadynet.files import LOCK, TEMPORARY, disk_errors, write_atomically
from steadynet.runs.directory import RunDirectory

_RUN = RunDirectory(Path())
WRITTEN_LAST = (_RUN.verdicts.name, _RUN.weights.name)  # they refer to other files, which must exist by then


@dataclass(frozen=True)
class FileChanges:
    """Contents of files by path, and paths of files that were deleted. All paths are relative to some root."""

    written: dict[str, bytes] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()


def read_files(root: Path, paths: Iterable[str]) -> FileChanges:
    """Read the files at and below these paths. A path that does not exist is left out."""
    return FileChanges({name: (root / name).read_bytes() for name in _names(root, paths)})


def apply_changes(root: Path, changes: FileChanges) -> None:
    """Write and delete files below ``root``.

    Each file is written atomically, and after the files that it refers to. If the process is killed in between, no
    file refers to a missing one.
    """
    for name in sorted(changes.written, key=lambda name: (Path(name).name in WRITTEN_LAST, name)):
        content = changes.written[name]
        write_atomically(root / name, lambda temporary, content=content: temporary.write_bytes(content))  # type: ignore[misc]
    with disk_errors(root):
        for name in changes.deleted:
            (root / name).unlink(missing_ok=True)


class ChangeTracker:
    """Finds the files at and below some paths that change from now on."""

    def __init__(self, root: Path, paths: Iterable[str]) -> None:
        self.root, self.paths = root, tuple(paths)
        self._first = self._last = self._marks()
        self._seen = set(self._first)

    def since_last_call(self) -> FileChanges:
        """Return what has changed since the last call."""
        before, self._last = self._last, self._marks()
        self._seen |= set(self._last)
        return self._changes(before, set(before))

    def since_start(self) -> FileChanges:
        """Return what has changed since the start. Files that existed only for a while count as deleted."""
        self._last = self._marks()
        return self._changes(self._first, self._seen)

    def _changes(self, before: dict[str, tuple[int, int, int]], existed: set[str]) -> FileChanges:
        written = [name for name, mark in self._last.items() if before.get(name) != mark]
        deleted = tuple(sorted(existed - set(self._last)))
        return FileChanges({name: (self.root / name).read_bytes() for name in written}, deleted)

    def _marks(self) -> dict[str, tuple[int, int, int]]:
        """Return a mark of each file, which differs when the file is replaced or grows."""
        stats = {name: (self.root / name).stat() for name in _names(self.root, self.paths)}
        return {name: (stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in stats.items()}


def _names(root: Path, paths: Iterable[str]) -> Iterator[str]:
    for path in dict.fromkeys(paths):
        place = root / path
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            if file.is_file() and not file.name.endswith((TEMPORARY, LOCK)):
                yield file.relative_to(root).as_posix()
