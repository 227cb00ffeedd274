"""The file ``regions.csv`` of a run: verdicts on regions and claims beyond the label in an ε-box."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from steadynet.errors import UserError
from steadynet.files import write_text
from steadynet.graph.rounding import Arithmetic
from steadynet.verification.asked import Asked
from steadynet.verification.properties import Guarantee, Verdict
from steadynet.verification.row_file import as_line, optional_choice


@dataclass(frozen=True)
class RegionRow:
    """The verdict on one image: what was asked, what was found, and the key of both.

    ``asked``, ``parameters`` and ``claim`` are those of :class:`~steadynet.verification.asked.Asked`. The other columns
    are those of ``verdicts.csv``.
    """

    asked: str
    parameters: str
    claim: str
    index: int
    label: int
    verdict: Verdict
    seconds: float
    timeout: float
    verifier: str
    settings: str
    decided_by: str
    reason: str
    arithmetic: Arithmetic | None
    guarantee: Guarantee | None
    counterexample: str
    data: str
    key: str

    @property
    def question(self) -> Asked:
        """What was asked."""
        return Asked(self.asked, self.parameters, self.claim)


PARSERS: dict[str, Callable[[str], Any]] = {
    **{entry.name: str for entry in fields(RegionRow)},
    **dict.fromkeys(("index", "label"), int),
    **dict.fromkeys(("seconds", "timeout"), float),
    "verdict": Verdict,
    "arithmetic": optional_choice(Arithmetic),
    "guarantee": optional_choice(Guarantee),
}


def read_regions(path: Path) -> list[RegionRow]:
    """Read ``regions.csv``; no row if there is no such file, or if an older version wrote it.

    Raises:
        UserError: The file is damaged.
    """
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    names = [entry.name for entry in fields(RegionRow)]
    if not lines or lines[0] != names:
        return []
    try:
        return [
            RegionRow(**{name: PARSERS[name](cell) for name, cell in zip(names, line, strict=True)})
            for line in lines[1:]
        ]
    except ValueError as error:
        raise UserError(f"{path} is damaged: run steadynet verify again") from error


def write_regions(path: Path, rows: Sequence[RegionRow]) -> None:
    """Write the rows of one question into ``regions.csv``. The rows of other questions stay."""
    asked = {(row.question, row.data) for row in rows}
    others = [row for row in read_regions(path) if (row.question, row.data) not in asked]
    lines = [as_line([entry.name for entry in fields(RegionRow)])]
    lines += [as_line(astuple(row)) for row in (*others, *rows)]
    write_text(path, "".join(f"{line}\n" for line in lines))
