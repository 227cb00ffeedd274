"""A list of VNN-COMP instances, decided one after another into a table. Stored results are not computed again."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadynet.errors import UserError, one_line
from steadynet.files import write_text
from steadynet.graph.rounding import Arithmetic
from steadynet.verification.proofs.of_instances import InstanceProofs
from steadynet.verification.properties import Guarantee, Verdict
from steadynet.verification.row_file import RowFile, as_line, optional_choice, warn_of_old_file
from steadynet.verification.verdict_key import instance_key
from steadynet.verification.verifiers import make_verifier
from steadynet.verification.vnncomp import Instance, InstanceResult, decide_with_hints

OLD_COLUMNS = ("network", "property", "timeout", "verdict", "seconds", "decided_by", "reason", "counterexample")
COLUMNS = (*OLD_COLUMNS, "verifier", "arithmetic", "guarantee", "key")

Identity = tuple[str, str, str, float]


@dataclass(frozen=True)
class ListedInstance:
    """One line of a list of instances: the names as they stand there, and the instance that they mean."""

    network_name: str
    property_name: str
    instance: Instance

    def identity(self, key: str) -> Identity:
        """Return the identity of its row in the table, if its verdict has this key."""
        return key, self.network_name, self.property_name, self.instance.timeout


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
    verifier: str
    arithmetic: Arithmetic | None  # which arithmetic a proof speaks of
    guarantee: Guarantee | None  # what a proof or a counterexample rests on
    key: str  # a hash of everything that the verdict depends on (see ``verdict_key``); empty if a file is missing

    @property
    def identity(self) -> Identity:
        """What distinguishes the row from others. Of two rows with the same identity, the later one counts."""
        return self.key, self.network_name, self.property_name, self.timeout

    def to_line(self) -> str:
        """Return the row as a line of the table, without its line end."""
        return as_line(
            [
                self.network_name, self.property_name, f"{self.timeout:.17g}", self.verdict, f"{self.seconds:.3f}",
                self.decided_by, self.reason, self.counterexample, self.verifier, self.arithmetic, self.guarantee,
                self.key,
            ]
        )  # fmt: skip

    @classmethod
    def from_line(cls, line: str) -> InstanceRow:
        """Read a row from a line of the table.

        Raises:
            ValueError: The line is no such row.
        """
        network, instance_property, timeout, verdict, seconds, *texts = next(csv.reader([line]), [])
        decided_by, reason, counterexample, verifier, arithmetic, guarantee, key = texts
        return cls(
            network, instance_property, float(timeout), Verdict(verdict), float(seconds), decided_by, reason,
            counterexample, verifier, optional_choice(Arithmetic)(arithmetic), optional_choice(Guarantee)(guarantee),
            key,
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
    """``results.csv``, one row per decided instance, with a folder of counterexamples beside it.

    A row is appended as soon as its instance is decided, so a killed run loses nothing. Several lists, verifiers and
    processes may share one table: a row is found by its key, never by the names of the files.
    """

    def __init__(self, path: Path) -> None:
        """Read the rows of earlier runs. Errors are dropped, so that they are tried again.

        A table that an older version wrote is renamed to ``results-old.csv``, and a warning says so.

        Raises:
            UserError: The file exists and is no such table.
        """
        self.path = path
        self.counterexamples = path.with_name(f"{path.stem}-counterexamples")
        self._file = RowFile(path, COLUMNS)
        with self._file.locked():
            if self._file.lines()[:1] == [as_line(OLD_COLUMNS)]:
                warn_of_old_file(self._file)
            rows = {row.identity: row for row in self._read() if row.verdict is not Verdict.ERROR}
            self._file.replace_all(row.to_line() for row in rows.values())
        self.rows = rows

    def stored(self, identity: Identity) -> InstanceRow | None:
        """Return the row of an earlier run that can be used again.

        A ``sat`` needs the file of its counterexample as it was written: its name ends with a hash of its content.
        """
        row = self.rows.get(identity)
        if row is None or row.verdict is not Verdict.SAT:
            return row
        try:
            content = (self.path.parent / row.counterexample).read_bytes()
        except OSError:
            return None
        return row if row.counterexample.endswith(f"-{_short_hash(content)}.txt") else None

    def add(self, listed: ListedInstance, result: InstanceResult, verifier: str, key: str) -> InstanceRow:
        """Append the result of an instance, and return its row."""
        counterexample = ""
        if result.verdict is Verdict.SAT:
            text, property_name = result.text(), listed.instance.property_file.name.split(".vnnlib")[0]
            name = f"{property_name}-{key[:16]}-{_short_hash(text.encode())}.txt"
            write_text(self.counterexamples / name, text)
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
            verifier=verifier,
            arithmetic=result.arithmetic,
            guarantee=result.guarantee,
            key=key,
        )
        with self._file.locked():
            self._file.append(row.to_line())
        self.rows[row.identity] = row
        return row

    def _read(self) -> list[InstanceRow]:
        header, *lines = self._file.lines() or [self._file.header]
        if header != self._file.header:
            raise UserError(f"{self.path} exists and holds something else; choose another --out or move it away")
        rows = []
        for number, line in enumerate(lines, 2):
            try:
                rows.append(InstanceRow.from_line(line))
            except (ValueError, csv.Error) as error:
                advice = "move it away to start anew"
                raise UserError(f"{self.path} is damaged: line {number} is no result; {advice}") from error
        return rows


def run_instances(
    listed: list[ListedInstance],
    table: ResultTable,
    verifier: str,
    settings: dict[str, Any],
    on_row: Callable[[InstanceRow], None],
    proofs: InstanceProofs | None = None,
) -> list[InstanceRow]:
    """Decide the instances that the table does not hold yet, one after another.

    A stored result is used again only if the content of both files, the verifier and its settings are the same.

    Args:
        listed: The instances.
        table: Where the results are stored.
        verifier: The name of the verifier.
        settings: Settings of that verifier.
        on_row: Called with the row of each instance, also of those decided earlier.
        proofs: Where to write proofs, if anywhere. A stored ``unsat`` without a proof is then decided anew.

    Returns:
        One row per instance, in their order. An instance whose files cannot be read, or that fails otherwise, is an
        ``error``. A proof that cannot be written changes no verdict.
    """
    rows = []
    for each in listed:
        try:
            key = _key(each, verifier, settings)
        except Exception as error:
            row = table.add(each, _failed(error), verifier, key="")
        else:
            row = _row(each, table, verifier, settings, key, proofs)
        rows.append(row)
        on_row(row)
    return rows


def _row(
    listed: ListedInstance,
    table: ResultTable,
    verifier: str,
    settings: dict[str, Any],
    key: str,
    proofs: InstanceProofs | None,
) -> InstanceRow:
    """Return the stored row of an instance, or decide it. Its verdict is stored before its proof is written."""
    stored = table.stored(listed.identity(key))
    if stored and (stored.verdict is not Verdict.UNSAT or proofs is None or proofs.has(listed.instance)):
        return stored
    result = _decide(listed, verifier, settings, key, proofs is not None)
    row = table.add(listed, result, verifier, key)
    if proofs is not None:
        proofs.write(listed.instance, result)
    return row


def _short_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _decide(listed: ListedInstance, verifier: str, settings: dict[str, Any], key: str, proofs: bool) -> InstanceResult:
    """Decide an instance. It is an ``error`` if a file makes no sense, was replaced meanwhile, or something fails."""
    try:
        result = decide_with_hints(listed.instance, verifier, settings, proofs=proofs)
        if _key(listed, verifier, settings) == key:
            return result
        return InstanceResult(Verdict.ERROR, reason="a file was changed while it was being verified: run it again")
    except Exception as error:  # one instance that fails must not stop the others
        return _failed(error)


def _failed(error: Exception) -> InstanceResult:
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return InstanceResult(Verdict.ERROR, reason=f"{kind}{one_line(error)}")


def _key(listed: ListedInstance, verifier: str, settings: dict[str, Any]) -> str:
    return instance_key(listed.instance.network, listed.instance.property_file, make_verifier(verifier, settings))
