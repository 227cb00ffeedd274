"""Stored verdicts: ``verdicts.csv`` with one row per property, and one file per counterexample."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from steadynet.errors import UserError
from steadynet.graph.rounding import Arithmetic
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import load_tensors, save_tensors
from steadynet.verification.properties import Guarantee, Verdict
from steadynet.verification.row_file import RowFile, as_line, optional_choice, warn_of_old_file
from steadynet.verification.verdict_key import NEVER_AGAIN

Identity = tuple[str, float, int, str, str]


@dataclass(frozen=True)
class Row:
    """One decided property: the test image ``index`` at radius ``eps``, and which verifier decided it."""

    eps: float
    index: int
    label: int
    verdict: Verdict
    seconds: float
    margin: float | None
    stable_share: float | None
    stable_method: str
    subproblems: int
    decided_by: str
    reason: str
    counterexample: str  # the path of its file, relative to the run directory; empty if there is none
    verifier: str
    timeout: float
    settings: str  # of the verifier, without its time-out
    data: str
    arithmetic: Arithmetic | None  # which arithmetic a proof speaks of
    guarantee: Guarantee | None  # what a proof or a counterexample rests on
    key: str  # a hash of everything that the verdict depends on (see ``verdict_key``); empty if it is not known

    @property
    def identity(self) -> Identity:
        """What distinguishes the row from others. Of two rows with the same identity, the later one counts."""
        return (self.key, self.eps, self.index, self.verifier, self.settings)

    def counts_for(self, timeout: float) -> bool:
        """Return whether the verdict can be used again, for the same key, by a verifier with this time-out.

        A proof or a counterexample counts if it took no longer than the time-out. A time-out or an unknown counts only
        if the time-out was the same. An error never counts, so it is tried again.
        """
        if not self.key or self.key.startswith(NEVER_AGAIN):
            return False
        if self.verdict in (Verdict.UNSAT, Verdict.SAT):
            return self.timeout == timeout or self.seconds <= timeout
        return self.verdict is not Verdict.ERROR and self.timeout == timeout


def _optional_float(text: str) -> float | None:
    return float(text) if text else None


COLUMNS = [field.name for field in fields(Row)]
_NEW_COLUMNS = ("arithmetic", "guarantee", "key")
OLD_COLUMNS = [*(name for name in COLUMNS if name not in _NEW_COLUMNS), "task"]  # before verdicts had a key
_PARSERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(COLUMNS, str),
    **dict.fromkeys(("eps", "seconds", "timeout"), float),
    **dict.fromkeys(("index", "label", "subproblems"), int),
    **dict.fromkeys(("margin", "stable_share"), _optional_float),
    "verdict": Verdict,
    "arithmetic": optional_choice(Arithmetic),
    "guarantee": optional_choice(Guarantee),
}


def row_as_line(row: Row) -> str:
    """Return a row as a line of ``verdicts.csv``. Numbers keep all their digits."""
    return as_line(astuple(row))


def _row_from(line: str, columns: list[str]) -> Row:
    cells = dict(zip(columns, next(csv.reader([line])), strict=True))
    return Row(**{name: parse(cells.get(name, "")) for name, parse in _PARSERS.items()})


def _row_file(run: RunDirectory) -> RowFile:
    return RowFile(run.verdicts, COLUMNS)


def read_rows(run: RunDirectory) -> list[Row]:
    """Read all rows of ``verdicts.csv``; none if there is no such file.

    The rows of a file that an older version wrote have no key: they can be shown, but are never used again.

    Raises:
        UserError: The file is damaged. A last line that was cut short by a kill is no damage.
    """
    header, *lines = _row_file(run).lines() or [as_line(COLUMNS)]
    columns = next((known for known in (COLUMNS, OLD_COLUMNS) if header == as_line(known)), None)
    advice = "move it away to decide everything anew"
    if columns is None:
        raise UserError(f"{run.verdicts} is damaged: line 1 is not the names of its columns; {advice}")
    rows: dict[Identity, Row] = {}
    for number, line in enumerate(lines, 2):
        try:
            row = _row_from(line, columns)
        except (ValueError, StopIteration, csv.Error) as error:
            raise UserError(f"{run.verdicts} is damaged: line {number} is not a verdict; {advice}") from error
        rows[row.identity] = row
    return list(rows.values())


class VerdictFile:
    """``verdicts.csv``, opened to add rows. Several processes may add rows to the same file."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._file = _row_file(run)
        self._last_to_disk = 0.0

    def update(self, change: Callable[[list[Row]], Iterable[Row]]) -> None:
        """Replace the rows of the file by what ``change`` makes of them, while no other process changes the file.

        If an older version wrote the file, it is renamed to ``verdicts-old.csv``, and a warning says so.

        Args:
            change: Called with the rows of the file. It returns those to write. Rows without a key are left out.
        """
        with self._file.locked():
            self.run.remove_left_overs(self.run.verdicts.name)
            rows = read_rows(self.run)
            lines = self._file.lines()
            if lines and lines[0] == as_line(OLD_COLUMNS):
                warn_of_old_file(self._file)
            self._file.replace_all(row_as_line(row) for row in change(rows) if row.key)

    def add(self, row: Row, counterexample: Tensor | None = None) -> None:
        """Append one row, after its counterexample was stored.

        The row survives a kill of the process at once, and a power cut after about a second.
        """
        with self._file.locked():  # also for the counterexample: who starts removes what killed processes left
            if counterexample is not None:
                tensors, facts = {"input": counterexample}, {"eps": row.eps, "index": row.index, "label": row.label}
                save_tensors(self.run.path / row.counterexample, tensors, facts)
            now = time.monotonic()
            self._file.append(row_as_line(row), to_disk=now - self._last_to_disk > 1)
            self._last_to_disk = now if now - self._last_to_disk > 1 else self._last_to_disk


def load_counterexample(run: RunDirectory, row: Row) -> Tensor:
    """Load the counterexample of a row.

    Raises:
        UserError: The file is missing or damaged.
    """
    return load_input(run.path / row.counterexample)


def load_input(path: Path) -> Tensor:
    """Load the counterexample in a file.

    Raises:
        UserError: The file is missing or damaged.
    """
    tensors, _ = load_tensors(path)
    if "input" not in tensors:
        raise UserError(f"{path} holds no counterexample")
    return tensors["input"]
