"""An experiment from its grid to its table: killed at any moment, the same call goes on."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadynet.errors import UserError
from steadynet.experiments.cells import Cell, Only, cells_of
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.engines import Engine
from steadynet.experiments.grid import Grid
from steadynet.experiments.lock import locked
from steadynet.experiments.plan import Plan, asks_of, planned
from steadynet.experiments.provenance import provenance
from steadynet.experiments.shards import put_together
from steadynet.experiments.status import Status
from steadynet.experiments.table import TableRow, rows_of, write_table
from steadynet.experiments.tasks import Event, State
from steadynet.files import read_toml, write_text

ENDED: tuple[State, ...] = ("done", "failed", "blocked")


@dataclass(frozen=True)
class Outcome:
    """The table, and what failed, with the reason."""

    rows: list[TableRow]
    failures: dict[str, str]


class Watcher:
    """Who watches a grid; this one says nothing."""

    def on_start(self, plan: Plan, status: Status) -> None:
        """Before the first task, with all that is to do and all that is done."""

    def on_event(self, event: Event) -> None:
        """After each event."""


def reproduce(
    grid: Grid,
    out: Path,
    engine: Engine,
    *,
    seeds: Sequence[int] = (0,),
    only: Only | None = None,
    reuse: Sequence[Path] = (),
    watcher: Watcher | None = None,
) -> Outcome:
    """Train, evaluate and verify every cell that is not done, below ``out``, and write the table of all that is.

    Runs of the same configuration that are finished in the experiments ``reuse`` are copied, not trained again.
    """
    grid = dataclasses.replace(grid, files={})  # as the files are now
    cells = cells_of(grid, seeds, only)
    for other in reuse:
        if not ExperimentDirectory(other).runs.is_dir():
            raise UserError(f"--reuse {other}: it holds no experiment")
    watcher = watcher or Watcher()
    experiment = ExperimentDirectory(out)
    with locked(experiment):
        seeds = _write_grid(experiment, grid, seeds, engine, cells)
        for cell in cells:
            _take_from(reuse, experiment, cell)
        plan = planned(experiment, cells)
        status = Status(experiment, grid.name, plan)
        watcher.on_start(plan, status)
        finished = _Finisher(experiment, plan)

        def on_event(event: Event) -> None:
            status.take(event)
            finished.take(event)
            watcher.on_event(event)

        try:
            engine.run(out, plan.left, on_event)
        finally:
            status.write()
        finished.everything()
        rows = table_of(experiment, grid, seeds)
        write_table(experiment, rows)
    return Outcome(rows, status.failures())


def table_of(experiment: ExperimentDirectory, grid: Grid, seeds: Sequence[int]) -> list[TableRow]:
    """The table of all cells that have a run, whoever made it, when and in which order."""
    cells = [cell for cell in cells_of(grid, seeds) if experiment.run(cell.key).path.is_dir()]
    return rows_of(experiment, grid.name, cells, asks_of(cells))


class _Finisher:
    """Puts the shards of a run at a radius together as soon as the last of them has ended."""

    def __init__(self, experiment: ExperimentDirectory, plan: Plan) -> None:
        self.experiment, self.plan = experiment, plan
        self.left: dict[tuple[str, float], set[str]] = {}
        for task in plan.left:
            if task.kind == "verify":
                self.left.setdefault(_place(task.spec), set()).add(task.name)

    def take(self, event: Event) -> None:
        task = self.plan.tasks[event.task]
        if task.kind != "verify" or event.state not in ENDED:
            return
        left = self.left[_place(task.spec)]
        left.discard(task.name)
        if not left:
            self._put_together(*_place(task.spec))

    def everything(self) -> None:
        for key in self.plan.asks:
            self._put_together(key)

    def _put_together(self, key: str, eps: float | None = None) -> None:
        put_together(self.experiment.run(key), self.plan.asks[key], eps)


def _place(spec: Mapping[str, Any]) -> tuple[str, float]:
    return Path(spec["run"]).name, spec["eps"]


def _take_from(others: Sequence[Path], experiment: ExperimentDirectory, cell: Cell) -> None:
    for other in others:
        source, run = ExperimentDirectory(other).run(cell.key), experiment.run(cell.key).path
        if not run.exists() and source.weights.is_file():
            made = run.with_name(f".{run.name}.made")
            shutil.rmtree(made, ignore_errors=True)
            shutil.copytree(source.path, made)
            made.rename(run)


def _write_grid(
    experiment: ExperimentDirectory, grid: Grid, seeds: Sequence[int], engine: Engine, cells: Sequence[Cell]
) -> list[int]:
    """The resolved grid with how it was made; a second call keeps the date and the seeds of the first. All seeds."""
    path, made = experiment.grid, provenance()
    before = read_toml(path).get("made", {}) if path.is_file() else {}
    first, seeds = before.get("started"), sorted({*before.get("seeds", []), *seeds})
    made = {"scale": grid.scale, "seeds": list(seeds), "engine": engine.name, "started": first or made["date"]} | made
    files = before.get("files", {}) | {path: digest for cell in cells for path, digest in cell.files.items()}
    made |= {"files": files} if files else {}
    write_text(path, grid.as_toml(made))
    return seeds
