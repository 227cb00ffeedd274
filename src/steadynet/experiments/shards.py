"""The verification of a run in shards: each decides some of the properties, then their verdicts are merged."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steadynet.runs.directory import RunDirectory
from steadynet.verification.verdicts import Row, VerdictFile, read_rows
from steadynet.verification.verify import make_verifier


@dataclass(frozen=True)
class Shard:
    """Some properties of a run: a radius and the indices of test images."""

    number: int
    eps: float
    index: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of its folder.

        >>> Shard(2, 0.1, ()).name
        'eps-0.1-002'
        """
        return f"{_prefix(self.eps)}{self.number:03d}"


def _prefix(eps: float) -> str:
    return f"eps-{eps:.6g}-"


@dataclass(frozen=True)
class VerificationPlan:
    """The properties of a run that are to be verified, and the verifier that decides them."""

    data: str
    index: tuple[int, ...]  # of the test images
    radii: tuple[float, ...]
    verifier: str
    verifier_settings: Mapping[str, object]
    shard_size: int

    @property
    def timeout(self) -> float:
        """The largest number of seconds per property."""
        return make_verifier(self.verifier, self.verifier_settings).timeout

    @property
    def settings(self) -> str:
        """The verifier's settings as a row of ``verdicts.csv`` holds them."""
        return make_verifier(self.verifier, self.verifier_settings).settings_line()

    def matching_rows(self, rows: Sequence[Row]) -> dict[tuple[float, int], Row]:
        """Return the rows of the planned properties by (radius, image), in the order of the plan.

        Rows of other verifiers, settings or time-outs are left out.
        """
        timeout, settings = self.timeout, self.settings
        found = {
            (row.eps, row.index): row
            for row in rows
            if row.verifier == self.verifier and row.settings == settings and row.timeout == timeout
        }
        planned = [(eps, index) for eps in self.radii for index in self.index]
        return {place: found[place] for place in planned if place in found}

    def shards(self) -> list[Shard]:
        """Return all shards."""
        starts = list(enumerate(range(0, len(self.index), self.shard_size)))
        return [
            Shard(number, eps, self.index[start : start + self.shard_size])
            for eps in self.radii
            for number, start in starts
        ]

    def undecided_shards(self, rows: Sequence[Row]) -> list[Shard]:
        """Return the shards with properties that are not decided, reduced to these. Errors are tried again."""
        decided = {place for place, row in self.matching_rows(rows).items() if row.counts_for(self.timeout)}
        reduced = [
            Shard(shard.number, shard.eps, tuple(index for index in shard.index if (shard.eps, index) not in decided))
            for shard in self.shards()
        ]
        return [shard for shard in reduced if shard.index]


def merge_shards(run: RunDirectory, plan: VerificationPlan, eps: float | None = None) -> None:
    """Merge the verdicts of all shards into ``verdicts.csv``, in the order of the plan, and delete the shards.

    If the process is killed, the same call can be made again: a shard is deleted only after its rows and
    counterexamples have been copied.

    Args:
        run: The run.
        plan: Its properties.
        eps: Merge only the shards of this radius, while others may still be written.
    """
    folder = run.shards
    if not folder.is_dir():
        return
    merged = sorted(folder.glob("*" if eps is None else f"{_prefix(eps)}*"))
    rows = {row.key: row for row in read_rows(run)}
    for path in merged:
        for row in read_rows(RunDirectory(path)):
            if row.counterexample and (path / row.counterexample).is_file():
                run.counterexamples.mkdir(exist_ok=True)
                shutil.copyfile(path / row.counterexample, run.path / row.counterexample)
            rows[row.key] = row
    positions = {place: position for position, place in enumerate(plan.matching_rows(list(rows.values())))}
    VerdictFile(run, sorted(rows.values(), key=lambda row: positions.get((row.eps, row.index), -1)))
    for path in merged if eps is not None else [folder]:
        shutil.rmtree(path)
