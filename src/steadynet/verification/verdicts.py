"""What was decided of a run's network, on disk: a row a property in ``verdicts.csv``, each counterexample in a file.

A row is appended as soon as its property is decided, so that a killed verification loses nothing; a line without its
end is one that a kill cut short, and is ignored.
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
    """One decided property: the test image ``index`` at radius ``eps``, and who decided it, with which settings."""

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
    counterexample: str  # a file of the run directory
    verifier: str
    timeout: float
    settings: str  # of the verifier, but for its time-out
    data: str
    task: str  # fingerprint of network and image: another network's verdict is never taken for this one's

    @property
    def key(self) -> tuple[str, float, int, str, str]:
        """What it is a verdict on, and by whom: of two rows with the same key the later one counts."""
        return (self.task, self.eps, self.index, self.verifier, self.settings)

    def counts_for(self, timeout: float) -> bool:
        """Whether a verifier with this time-out need not decide it again.

        A proof or a counterexample counts if it took no longer than is allowed now, a time-out only if it was the
        same; an error is tried again.
        """
        if self.verdict in (Verdict.UNSAT, Verdict.SAT):
            return self.timeout == timeout or self.seconds <= timeout
        return self.verdict is not Verdict.ERROR and self.timeout == timeout


def _perhaps(text: str) -> float | None:
    return float(text) if text else None


COLUMNS = [field.name for field in fields(Row)]
_READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(COLUMNS, str),
    **dict.fromkeys(("eps", "seconds", "timeout"), float),
    **dict.fromkeys(("index", "label", "subproblems"), int),
    **dict.fromkeys(("margin", "stable_share"), _perhaps),
    "verdict": Verdict,
}


def _as_line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(
        ["" if cell is None else " ".join(str(cell).split()) if isinstance(cell, str) else cell for cell in cells]
    )
    return text.getvalue()


def row_as_line(row: Row) -> str:
    """A row as ``verdicts.csv`` holds it: numbers in full, so that they are read back as they were."""
    return _as_line(cell.value if isinstance(cell, Verdict) else cell for cell in astuple(row))


def read_rows(run: RunDirectory) -> list[Row]:
    """Every row of ``verdicts.csv``; a damaged file is an error, a last line that a kill cut short is not."""
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
            row = Row(**{name: _READ[name](cell) for name, cell in zip(COLUMNS, cells, strict=True)})
        except (ValueError, StopIteration, csv.Error) as error:
            raise UserError(f"{run.verdicts} is damaged: line {number} is not a verdict; {advice}") from error
        rows[row.key] = row
    return list(rows.values())


class VerdictFile:
    """``verdicts.csv`` while properties are decided: rows that count no more are dropped first, then new ones added."""

    def __init__(self, run: RunDirectory, rows: list[Row]) -> None:
        """Start from these rows, and only these."""
        self.run = run
        self._last_to_disk = 0.0
        run.remove_left_overs(run.verdicts.name)
        text = "".join(f"{line}\n" for line in [_as_line(COLUMNS), *map(row_as_line, rows)])
        if not run.verdicts.is_file() or run.verdicts.read_bytes() != text.encode():
            write_text(run.verdicts, text)

    def add(self, row: Row) -> None:
        """Append one row: safe from a kill at once, from a power cut within about a second's work."""
        now = time.monotonic()
        append_line(self.run.verdicts, row_as_line(row), to_disk=now - self._last_to_disk > 1)
        self._last_to_disk = now if now - self._last_to_disk > 1 else self._last_to_disk


def save_counterexample(run: RunDirectory, eps: float, index: int, label: int, task: str, point: Tensor) -> str:
    """Store an input that refutes a property; the name of its file in the run directory."""
    path = run.counterexample(index, eps, task)
    save_tensors(path, {"input": point}, {"eps": eps, "index": index, "label": label})
    return path.relative_to(run.path).as_posix()


def load_counterexample(run: RunDirectory, row: Row) -> Tensor:
    """The stored input that refutes a row's property."""
    tensors, _ = load_tensors(run.path / row.counterexample)
    if "input" not in tensors:
        raise UserError(f"{run.path / row.counterexample} holds no counterexample")
    return tensors["input"]


def fingerprints(network: nn.Module, images: Tensor) -> list[str]:
    """A name for each pair of the network (its weights) and an image (batch, *shape).

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
