"""The verification of a run in shards, a few properties each, and their verdicts put together again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from steadynet.runs.directory import RunDirectory
from steadynet.verification.verdicts import Row, VerdictFile, read_rows
from steadynet.verification.verify import make_verifier


@dataclass(frozen=True)
class Ask:
    """What is asked of a network: test images by their index, radii, and who decides, with which settings."""

    data: str
    index: tuple[int, ...]
    radii: tuple[float, ...]
    verifier: str
    verifier_settings: dict[str, object]
    shard: int

    @property
    def timeout(self) -> float:
        """Seconds a property may take."""
        return make_verifier(self.verifier, self.verifier_settings).timeout

    @property
    def settings(self) -> str:
        """The verifier's settings as a row of ``verdicts.csv`` holds them."""
        return make_verifier(self.verifier, self.verifier_settings).settings_line()

    def answers(self, rows: Sequence[Row]) -> dict[tuple[float, int], Row]:
        """The rows that answer what is asked, by radius and image, in the order asked."""
        timeout, settings = self.timeout, self.settings
        found = {
            (row.eps, row.index): row
            for row in rows
            if row.verifier == self.verifier and row.settings == settings and row.timeout == timeout
        }
        asked = [(eps, index) for eps in self.radii for index in self.index]
        return {place: found[place] for place in asked if place in found}

    def open_shards(self, rows: Sequence[Row]) -> list[tuple[str, float, list[int]]]:
        """(name, radius, images) of the shards that hold anything that is not decided; errors are tried again."""
        decided = {place for place, row in self.answers(rows).items() if row.counts_for(self.timeout)}
        result = []
        for eps in self.radii:
            for number, start in enumerate(range(0, len(self.index), self.shard)):
                left = [index for index in self.index[start : start + self.shard] if (eps, index) not in decided]
                if left:
                    result.append((f"{_of_radius(eps)}{number:03d}", eps, left))
        return result


def _of_radius(eps: float) -> str:
    return f"eps-{eps:.6g}-"


def put_together(run: RunDirectory, ask: Ask, eps: float | None = None) -> None:
    """The verdicts of all shards, or of those of one radius while others are at work, into ``verdicts.csv``.

    In the order asked, as ``steadynet verify`` writes them. Killed at any moment, it can be done again: a shard goes
    when its rows and counterexamples are in their place.
    """
    folder = run.shards
    if not folder.is_dir():
        return
    taken = sorted(folder.glob("*" if eps is None else f"{_of_radius(eps)}*"))
    rows = {row.key: row for row in read_rows(run)}
    for path in taken:
        shard = RunDirectory(path)
        for row in read_rows(shard):
            if row.counterexample and (path / row.counterexample).is_file():
                run.counterexamples.mkdir(exist_ok=True)
                shutil.copyfile(path / row.counterexample, run.path / row.counterexample)
            rows[row.key] = row
    places = {place: position for position, place in enumerate(ask.answers(list(rows.values())))}
    VerdictFile(run, sorted(rows.values(), key=lambda row: places.get((row.eps, row.index), -1)))
    for path in taken if eps is not None else [folder]:
        shutil.rmtree(path)
