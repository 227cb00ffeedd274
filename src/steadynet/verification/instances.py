"""A folder of the competition's instances, one after another into a table; what is decided is not decided again."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadynet.errors import UserError, one_line
from steadynet.files import append_line, write_text
from steadynet.verification.properties import Verdict
from steadynet.verification.vnncomp import Answer, Instance, decide

COLUMNS = ("network", "property", "timeout", "verdict", "seconds", "decided_by", "reason", "counterexample")


@dataclass(frozen=True)
class Listed:
    """A line of the list: the names as they stand there, and the instance they mean."""

    network: str
    question: str
    instance: Instance

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from the others."""
        return self.network, self.question, f"{self.instance.timeout:g}"


def read_instances(path: Path) -> list[Listed]:
    """The lines "network,property,time-out" of a list; files are looked for beside it."""
    try:
        lines = [row for row in csv.reader(io.StringIO(path.read_text(encoding="utf-8"))) if any(map(str.strip, row))]
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"cannot read {path}: {one_line(error)}") from error
    result = []
    for number, row in enumerate(lines, 1):
        try:
            network, question, seconds = (cell.strip() for cell in row)
            timeout = float(seconds)
        except ValueError:
            raise UserError(f"{path}, line {number}: not 'network,property,seconds'") from None
        if not (timeout > 0 and math.isfinite(timeout)):
            raise UserError(f"{path}, line {number}: the time-out must be larger than 0")
        result.append(Listed(network, question, Instance(path.parent / network, path.parent / question, timeout)))
    if not result:
        raise UserError(f"{path} lists no instance")
    return result


class ResultTable:
    """``results.csv``: a row an instance, appended as soon as it is decided; counterexamples in a folder beside it."""

    def __init__(self, path: Path) -> None:
        """Take up what an earlier run has decided; an error is tried again."""
        self.path = path
        self.counterexamples = path.with_name(f"{path.stem}-counterexamples")
        self.rows = {
            (row["network"], row["property"], row["timeout"]): row
            for row in self._read()
            if row["verdict"] != Verdict.ERROR.value
        }
        write_text(path, "".join(f"{_line(row)}\n" for row in [list(COLUMNS), *map(_cells, self.rows.values())]))

    def add(self, listed: Listed, answer: Answer) -> dict[str, str]:
        """Append one answer; the row."""
        stored = ""
        if answer.verdict is Verdict.SAT:
            self.counterexamples.mkdir(parents=True, exist_ok=True)
            name = f"{len(self.rows)}-{listed.instance.question.name.split('.vnnlib')[0]}.txt"
            write_text(self.counterexamples / name, answer.text())
            stored = f"{self.counterexamples.name}/{name}"
        cells = [*listed.key, answer.verdict.value, f"{answer.seconds:.3f}", answer.decided_by, answer.reason, stored]
        append_line(self.path, _line(cells), to_disk=True)
        self.rows[listed.key] = dict(zip(COLUMNS, cells, strict=True))
        return self.rows[listed.key]

    def _read(self) -> Iterator[dict[str, str]]:
        if not self.path.is_file():
            return
        header, *lines = self.path.read_bytes().decode("utf-8", errors="replace").split("\n")[:-1] or [""]
        if header != _line(list(COLUMNS)):
            raise UserError(f"{self.path} exists and holds something else; choose another --out or move it away")
        for line in lines:
            cells = next(csv.reader([line]), [])
            if len(cells) == len(COLUMNS):
                yield dict(zip(COLUMNS, cells, strict=True))


def _cells(row: dict[str, str]) -> list[str]:
    return [row[name] for name in COLUMNS]


def _line(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([" ".join(cell.split()) for cell in cells])
    return text.getvalue()


def run_instances(
    listed: list[Listed],
    table: ResultTable,
    verifier: str,
    settings: dict[str, Any],
    on_row: Callable[[dict[str, str]], None],
) -> list[dict[str, str]]:
    """A row for each, in order; an instance that cannot be read is an error, and the others go on."""
    for each in listed:
        if each.key not in table.rows:
            try:
                answer = decide(each.instance, verifier, **settings)
            except UserError as error:
                answer = Answer(Verdict.ERROR, reason=str(error))
            table.add(each, answer)
        on_row(table.rows[each.key])
    return [table.rows[each.key] for each in listed]
