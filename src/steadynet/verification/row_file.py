"""CSV files of results: rows are added one at a time, by several processes at once if need be.

Every change is made under a lock. A row is appended in a single write as soon as it is known, so a killed process loses
nothing. A last line without its line end was cut short by a kill, and is ignored.
"""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from steadynet.files import append_line, disk_errors, locked_file, write_text

_Choice = TypeVar("_Choice", bound=Enum)


def as_line(cells: Iterable[object]) -> str:
    """Return cells as a line of a CSV file, without its line end. None is empty, and text is kept in one line.

    >>> as_line([0.5, None, "said no, and\\nleft"])
    '0.5,,"said no, and left"'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(map(_cell, cells))
    return text.getvalue()


def _cell(value: object) -> object:
    value = value.value if isinstance(value, Enum) else value
    return "" if value is None else " ".join(value.split()) if isinstance(value, str) else value


def optional_choice(kind: type[_Choice]) -> Callable[[str], _Choice | None]:
    """Return a function that reads a member of an enumeration from a cell; None from an empty one."""
    return lambda text: kind(text) if text else None


@dataclass(frozen=True)
class RowFile:
    """A CSV file with a line of column names."""

    path: Path
    columns: Sequence[str]

    @property
    def header(self) -> str:
        """The first line of the file."""
        return as_line(self.columns)

    def lines(self) -> list[str]:
        """Read all complete lines, the first one too; none if there is no file or nothing in it.

        A first line that is not complete counts if it is not the beginning of the header: then it is another file.
        """
        if not self.path.is_file():
            return []
        *lines, rest = self.path.read_bytes().decode("utf-8", errors="replace").split("\n")
        return lines or ([] if self.header.startswith(rest) else [rest])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from changing the file inside a ``with`` block."""
        with locked_file(self.path):
            yield

    def replace_all(self, lines: Iterable[str]) -> None:
        """Write the file with these rows only. The file must be locked."""
        text = "".join(f"{line}\n" for line in [self.header, *lines])
        if not self.path.is_file() or self.path.read_bytes() != text.encode():
            write_text(self.path, text)

    def append(self, line: str, to_disk: bool = True) -> None:
        """Append a row. The file must be locked. The part of a row that a killed process has left is removed."""
        with disk_errors(self.path):
            _remove_incomplete_line(self.path)
        append_line(self.path, line, to_disk)

    def set_aside(self) -> Path:
        """Rename the file, so that it is kept but not read again, and return its new path. The file must be locked."""
        number, place = 1, self.path.with_name(f"{self.path.stem}-old{self.path.suffix}")
        while place.exists():
            number += 1
            place = self.path.with_name(f"{self.path.stem}-old-{number}{self.path.suffix}")
        with disk_errors(place):
            os.replace(self.path, place)
        return place


def _remove_incomplete_line(path: Path) -> None:
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def warn_of_old_file(file: RowFile) -> None:
    """Set aside a file whose results cannot be used again, because its version did not store what they depend on."""
    moved = file.set_aside()
    warnings.warn(
        f"{file.path} was written by an older version, whose verdicts are not used again: it is now {moved.name}, and "
        "everything is decided anew",
        stacklevel=4,
    )
