"""Stored verdicts: ``verdicts.csv`` with one row per property, and one file per counterexample.

A row is appended as soon as its property is decided, so a killed verification loses nothing. A last line without its
line end was cut short by a kill, and is ignored.
"""

from __future__ import annotations

import csv
import io
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from steadynet.errors import UserError
from steadynet.files import append_line, write_text
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import load_tensors, save_tensors
from steadynet.verification.properties import Verdict


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
    fingerprint: str  # of the network and the image, so that another network's verdict is never used; column "task"

    @property
    def key(self) -> tuple[str, float, int, str, str]:
        """What the verdict is about, and the verifier. Of two rows with the same key, the later one counts."""
        return (self.fingerprint, self.eps, self.index, self.verifier, self.settings)

    def counts_for(self, timeout: float) -> bool:
        """Return whether the verdict can be used again by a verifier with this time-out.

        A proof or a counterexample counts if it took no longer than the time-out. A time-out or an unknown counts only
        if the time-out was the same. An error never counts, so it is tried again.
        """
        if self.verdict in (Verdict.UNSAT, Verdict.SAT):
            return self.timeout == timeout or self.seconds <= timeout
        return self.verdict is not Verdict.ERROR and self.timeout == timeout


def _optional_float(text: str) -> float | None:
    return float(text) if text else None


_FIELDS = [field.name for field in fields(Row)]
COLUMNS = ["task" if name == "fingerprint" else name for name in _FIELDS]
_PARSERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(_FIELDS, str),
    **dict.fromkeys(("eps", "seconds", "timeout"), float),
    **dict.fromkeys(("index", "label", "subproblems"), int),
    **dict.fromkeys(("margin", "stable_share"), _optional_float),
    "verdict": Verdict,
}


def _as_line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(
        ["" if cell is None else " ".join(str(cell).split()) if isinstance(cell, str) else cell for cell in cells]
    )
    return text.getvalue()


def row_as_line(row: Row) -> str:
    """Return a row as a line of ``verdicts.csv``. Numbers keep all their digits."""
    return _as_line(cell.value if isinstance(cell, Verdict) else cell for cell in astuple(row))


def read_rows(run: RunDirectory) -> list[Row]:
    """Read all rows of ``verdicts.csv``; none if there is no such file.

    Raises:
        UserError: The file is damaged. A last line that was cut short by a kill is no damage.
    """
    if not run.verdicts.is_file():
        return []
    text = run.verdicts.read_bytes().decode("utf-8", errors="replace")
    header, *lines = text.split("\n")[:-1] or [_as_line(COLUMNS)]
    advice = "move it away to decide everything anew"
    if header != _as_line(COLUMNS):
        raise UserError(f"{run.verdicts} is damaged: line 1 is not the names of its columns; {advice}")
    rows: dict[tuple[str, float, int, str, str], Row] = {}
    for number, line in enumerate(lines, 2):
        try:
            cells = next(csv.reader([line]))
            row = Row(**{name: _PARSERS[name](cell) for name, cell in zip(_FIELDS, cells, strict=True)})
        except (ValueError, StopIteration, csv.Error) as error:
            raise UserError(f"{run.verdicts} is damaged: line {number} is not a verdict; {advice}") from error
        rows[row.key] = row
    return list(rows.values())


class VerdictFile:
    """``verdicts.csv``, opened to add rows."""

    def __init__(self, run: RunDirectory, rows: list[Row]) -> None:
        """Write the file with these rows only."""
        self.run = run
        self._last_to_disk = 0.0
        run.remove_left_overs(run.verdicts.name)
        text = "".join(f"{line}\n" for line in [_as_line(COLUMNS), *map(row_as_line, rows)])
        if not run.verdicts.is_file() or run.verdicts.read_bytes() != text.encode():
            write_text(run.verdicts, text)

    def add(self, row: Row) -> None:
        """Append one row. It survives a kill of the process at once, and a power cut after about a second."""
        now = time.monotonic()
        append_line(self.run.verdicts, row_as_line(row), to_disk=now - self._last_to_disk > 1)
        self._last_to_disk = now if now - self._last_to_disk > 1 else self._last_to_disk


def save_counterexample(run: RunDirectory, eps: float, index: int, label: int, fingerprint: str, point: Tensor) -> str:
    """Store a counterexample, and return the path of its file relative to the run directory."""
    path = run.counterexample(index, eps, fingerprint)
    save_tensors(path, {"input": point}, {"eps": eps, "index": index, "label": label})
    return path.relative_to(run.path).as_posix()


def load_counterexample(run: RunDirectory, row: Row) -> Tensor:
    """Load the counterexample of a row.

    Raises:
        UserError: The file is missing or damaged.
    """
    tensors, _ = load_tensors(run.path / row.counterexample)
    if "input" not in tensors:
        raise UserError(f"{run.path / row.counterexample} holds no counterexample")
    return tensors["input"]


def fingerprints(network: nn.Module, images: Tensor) -> list[str]:
    """Return one fingerprint per image (batch, *shape), of the network's weights and that image.

    >>> network = nn.Linear(1, 1)
    >>> one, other = fingerprints(network, torch.tensor([[0.1], [0.2]]))
    >>> one == other, fingerprints(network, torch.tensor([[0.1]])) == [one]
    (False, True)
    """
    weights = 0
    for name, tensor in network.state_dict().items():
        weights = zlib.crc32(_bytes(tensor), zlib.crc32(name.encode(), weights))
    return [f"{zlib.crc32(_bytes(image), weights):08x}" for image in images]


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
