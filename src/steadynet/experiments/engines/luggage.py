"""Files that travel with a task where no file system is shared: its inputs there, what it makes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from steadynet.files import TEMPORARY, disk_errors, write_atomically
from steadynet.runs.directory import RunDirectory

_RUN = RunDirectory(Path())
LAST = (_RUN.verdicts.name, _RUN.weights.name)  # they vouch for other files, so those are written first


@dataclass(frozen=True)
class Changes:
    """Files by their path below a root, and those that are there no more."""

    written: dict[str, bytes] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


def packed(root: Path, paths: Iterable[str]) -> Changes:
    """The files at and below these paths; what is not there is left out."""
    return Changes({name: (root / name).read_bytes() for name in _names(root, paths)})


def unpack(root: Path, changes: Changes) -> None:
    """Put the files in their places, each whole or not at all; killed in between, nothing claims more than is there."""
    for name in sorted(changes.written, key=lambda name: (Path(name).name in LAST, name)):
        content = changes.written[name]
        write_atomically(root / name, lambda temporary, content=content: temporary.write_bytes(content))  # type: ignore[misc]
    with disk_errors(root):
        for name in changes.gone:
            (root / name).unlink(missing_ok=True)


class Watch:
    """What changes at and below some paths, from now on."""

    def __init__(self, root: Path, paths: Iterable[str]) -> None:
        self.root, self.paths = root, tuple(paths)
        self._first = self._last = self._marks()
        self._ever = set(self._first)

    def news(self) -> Changes:
        """What has changed since the last call."""
        before, self._last = self._last, self._marks()
        self._ever |= set(self._last)
        return self._changes(before, set(before))

    def everything(self) -> Changes:
        """What has changed since the start; gone is also what was there only for a while."""
        self._last = self._marks()
        return self._changes(self._first, self._ever)

    def _changes(self, before: dict[str, tuple[int, int, int]], there: set[str]) -> Changes:
        written = [name for name, mark in self._last.items() if before.get(name) != mark]
        gone = tuple(sorted(there - set(self._last)))
        return Changes({name: (self.root / name).read_bytes() for name in written}, gone)

    def _marks(self) -> dict[str, tuple[int, int, int]]:
        """A file that is replaced or grows has another mark."""
        stats = {name: (self.root / name).stat() for name in _names(self.root, self.paths)}
        return {name: (stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in stats.items()}


def _names(root: Path, paths: Iterable[str]) -> Iterator[str]:
    for path in dict.fromkeys(paths):
        place = root / path
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            if file.is_file() and not file.name.endswith(TEMPORARY):
                yield file.relative_to(root).as_posix()
