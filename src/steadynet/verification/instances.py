"""A list of VNN-COMP instances, decided one after another into a table. Stored results are not computed again."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadynet.errors import UserError, one_line
from steadynet.files import append_line, write_text
from steadynet.verification.properties import Verdict
from steadynet.verification.vnncomp import Instance, InstanceResult, decide

COLUMNS = ("network", "property", "timeout", "verdict", "seconds", "decided_by", "reason", "counterexample")


@dataclass(frozen=True)
class ListedInstance:
    """One line of a list of instances: the names as they stand there, and the instance that they mean."""

    network_name: str
    property_name: str
    instance: Instance

    @property
    def key(self) -> tuple[str, str, str]:
        """What distinguishes it from the other instances."""
        return self.network_name, self.property_name, f"{self.instance.timeout:g}"


@dataclass(frozen=True)
class InstanceRow:
    """One row of ``results.csv``: a decided instance."""

    network_name: str
    property_name: str
    timeout: float
    verdict: Verdict
    seconds: float
    decided_by: str
    reason: str
    counterexample: str  # the path of its file, relative to the table; empty if there is none

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of its instance."""
        return self.network_name, self.property_name, f"{self.timeout:g}"

    def to_line(self) -> str:
        """Return the row as a line of the table, without its line end."""
        return _line(
            [*self.key, self.verdict.value, f"{self.seconds:.3f}", self.decided_by, self.reason, self.counterexample]
        )

    @classmethod
    def from_line(cls, line: str) -> InstanceRow:
        """Read a row from a line of the table.

        Raises:
            ValueError: The line is no such row.
        """
        network, instance_property, timeout, verdict, seconds, *texts = next(csv.reader([line]), [])
        decided_by, reason, counterexample = texts
        return cls(
            network, instance_property, float(timeout), Verdict(verdict), float(seconds), decided_by, reason,
            counterexample,
        )  # fmt: skip


def read_instances(path: Path) -> list[ListedInstance]:
    """Read a list with one "network,property,time-out" per line. Paths are relative to the list.

    Raises:
        UserError: The file cannot be read, a line is wrong, or there is no line.
    """
    try:
        lines = [row for row in csv.reader(io.StringIO(path.read_text(encoding="utf-8"))) if any(map(str.strip, row))]
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"cannot read {path}: {one_line(error)}") from error
    result = []
    for number, row in enumerate(lines, 1):
        try:
            network, property_name, seconds = (cell.strip() for cell in row)
            timeout = float(seconds)
        except ValueError:
            raise UserError(f"{path}, line {number}: not 'network,property,seconds'") from None
        if not (timeout > 0 and math.isfinite(timeout)):
            raise UserError(f"{path}, line {number}: the time-out must be larger than 0")
        instance = Instance(path.parent / network, path.parent / property_name, timeout)
        result.append(ListedInstance(network, property_name, instance))
    if not result:
        raise UserError(f"{path} lists no instance")
    return result


class ResultTable:
    """``results.csv``, one row per instance, with a folder of counterexamples beside it.

    A row is appended as soon as its instance is decided, so a killed run loses nothing.
    """

    def __init__(self, path: Path) -> None:
        """Read the rows of an earlier run. Errors are dropped, so that they are tried again.

        Raises:
            UserError: The file exists and is no such table.
        """
        self.path = path
        self.counterexamples = path.with_name(f"{path.stem}-counterexamples")
        self.rows = {row.key: row for row in _read_rows(path) if row.verdict is not Verdict.ERROR}
        lines = [_line(COLUMNS), *(row.to_line() for row in self.rows.values())]
        write_text(path, "".join(f"{line}\n" for line in lines))

    def add(self, listed: ListedInstance, result: InstanceResult) -> InstanceRow:
        """Append the result of an instance, and return its row."""
        counterexample = ""
        if result.verdict is Verdict.SAT:
            self.counterexamples.mkdir(parents=True, exist_ok=True)
            name = f"{len(self.rows)}-{listed.instance.property_file.name.split('.vnnlib')[0]}.txt"
            write_text(self.counterexamples / name, result.text())
            counterexample = f"{self.counterexamples.name}/{name}"
        row = InstanceRow(
            network_name=listed.network_name,
            property_name=listed.property_name,
            timeout=listed.instance.timeout,
            verdict=result.verdict,
            seconds=result.seconds,
            decided_by=result.decided_by,
            reason=result.reason,
            counterexample=counterexample,
        )
        append_line(self.path, row.to_line(), to_disk=True)
        self.rows[row.key] = row
        return row


def _read_rows(path: Path) -> list[InstanceRow]:
    """Read all rows of the table. A last line without its line end was cut short by a kill, and is ignored."""
    if not path.is_file():
        return []
    header, *lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")[:-1] or [""]
    if header != _line(COLUMNS):
        raise UserError(f"{path} exists and holds something else; choose another --out or move it away")
    rows = []
    for number, line in enumerate(lines, 2):
        try:
            rows.append(InstanceRow.from_line(line))
        except (ValueError, csv.Error) as error:
            raise UserError(f"{path} is damaged: line {number} is no result; move it away to start anew") from error
    return rows


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([" ".join(cell.split()) for cell in cells])
    return text.getvalue()


def run_instances(
    listed: list[ListedInstance],
    table: ResultTable,
    verifier: str,
    settings: dict[str, Any],
    on_row: Callable[[InstanceRow], None],
) -> list[InstanceRow]:
    """Decide the instances that the table does not hold yet, one after another.

    Args:
        listed: The instances.
        table: Where the results are stored.
        verifier: The name of the verifier.
        settings: Settings of that verifier.
        on_row: Called with the row of each instance, also of those decided earlier.

    Returns:
        One row per instance, in their order. An instance whose files cannot be read is an ``error``.
    """
    rows = []
    for each in listed:
        if each.key not in table.rows:
            try:
                result = decide(each.instance, verifier, **settings)
            except UserError as error:
                result = InstanceResult(Verdict.ERROR, reason=str(error))
            table.add(each, result)
        rows.append(table.rows[each.key])
        on_row(rows[-1])
    return rows
