"""The verification of a run in shards: each decides some of the properties, then their verdicts are merged."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch

from steadynet import data
from steadynet.experiments.published import hash_of_run
from steadynet.runs.directory import RunDirectory
from steadynet.verification.verdict_key import keys_of_hash
from steadynet.verification.verdicts import Row, VerdictFile, read_rows
from steadynet.verification.verifiers import make_verifier


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

    data: str  # the name of the data set
    index: tuple[int, ...]  # of the test images
    radii: tuple[float, ...]
    verifier: str
    verifier_settings: Mapping[str, object]
    shard_size: int

    @property
    def timeout(self) -> float:
        """The largest number of seconds per property."""
        return make_verifier(self.verifier, self.verifier_settings).timeout

    def stored_rows(self, run: RunDirectory) -> dict[tuple[float, int], Row]:
        """Return the stored rows of the planned properties by (radius, image), in the order of the plan.

        Rows with another key or time-out are left out: those of another network, image, label, verifier or setting.
        """
        rows = read_rows(run)
        hashed = hash_of_run(run) if rows else None
        if hashed is None:
            return {}
        verifier = make_verifier(self.verifier, self.verifier_settings)
        test, index = load_data(self.data).test, torch.tensor(self.index)
        keys = keys_of_hash(hashed, test.pixels(index), test.labels[index], self.radii, verifier)
        found = {(row.key, row.eps, row.index): row for row in rows if row.timeout == verifier.timeout}
        planned = [(eps, position) for eps in self.radii for position in range(len(self.index))]
        places = {(eps, self.index[position]): keys[eps, position] for eps, position in planned}
        return {place: found[(key, *place)] for place, key in places.items() if (key, *place) in found}

    def shards(self) -> list[Shard]:
        """Return all shards."""
        starts = list(enumerate(range(0, len(self.index), self.shard_size)))
        return [
            Shard(number, eps, self.index[start : start + self.shard_size])
            for eps in self.radii
            for number, start in starts
        ]

    def undecided_shards(self, run: RunDirectory) -> list[Shard]:
        """Return the shards with properties that are not decided, reduced to these. Errors are tried again."""
        decided = {place for place, row in self.stored_rows(run).items() if row.counts_for(self.timeout)}
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
    added = []
    for path in merged:
        for row in read_rows(RunDirectory(path)):
            if row.counterexample and (path / row.counterexample).is_file():
                run.counterexamples.mkdir(exist_ok=True)
                shutil.copyfile(path / row.counterexample, run.path / row.counterexample)
            added.append(row)
    planned = [(planned_eps, index) for planned_eps in plan.radii for index in plan.index]
    positions = {place: position for position, place in enumerate(planned)}

    def with_added(rows: list[Row]) -> list[Row]:
        by_identity = {row.identity: row for row in [*rows, *added]}
        return sorted(by_identity.values(), key=lambda row: positions.get((row.eps, row.index), -1))

    VerdictFile(run).update(with_added)
    for path in merged if eps is not None else [folder]:
        shutil.rmtree(path)


def load_data(name: str) -> data.Dataset:
    """Load a data set, or take it from memory if it was loaded before and a user's own file has not changed."""
    own = data.own_file(name)
    return _load_version(name, own.stat().st_mtime_ns if own and own.is_file() else None)


@lru_cache(maxsize=2)
def _load_version(name: str, version: int | None) -> data.Dataset:
    return data.load(name)
