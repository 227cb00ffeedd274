"""Run an experiment: from its grid to its table. If it is stopped, the same call continues it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steadynet.experiments.cells import Cell, Only, cells_of
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.engines import Engine
from steadynet.experiments.grid import Grid
from steadynet.experiments.lock import locked
from steadynet.experiments.plan import Plan, make_plan, verification_plans
from steadynet.experiments.provenance import Made, made_from, provenance
from steadynet.experiments.shards import merge_shards
from steadynet.experiments.status import StatusFile
from steadynet.experiments.table import TableRow, rows_of
from steadynet.experiments.table_files import write_table
from steadynet.experiments.take_up import take_up
from steadynet.experiments.tasks import Event, Stage, State, VerifyJob
from steadynet.files import read_toml, write_text

ENDED: tuple[State, ...] = ("done", "failed", "blocked")


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment: the table, and the reasons of failed tasks by name."""

    rows: list[TableRow]
    failures: dict[str, str]


class Watcher:
    """Observes an experiment while it runs. This one does nothing; subclasses override what they need."""

    def on_start(self, plan: Plan, status: StatusFile) -> None:
        """Called before the first task, with all tasks and their status."""

    def on_event(self, event: Event) -> None:
        """Called after each event."""


def reproduce(
    grid: Grid,
    out: Path,
    engine: Engine,
    *,
    seeds: Sequence[int] | None = None,
    only: Only | None = None,
    reuse: Sequence[Path] = (),
    until: Stage = "verify",
    watcher: Watcher | None = None,
) -> Outcome:
    """Train, evaluate and verify the networks of a grid, and write its table.

    What is done already is not done again. If the call is stopped or killed, the same call continues.

    Args:
        grid: The grid, from :func:`steadynet.experiments.grid.read_grid`.
        out: The experiment's directory.
        engine: What runs the tasks, such as :class:`steadynet.experiments.engines.local.Local`.
        seeds: Train one network per seed; None for the seeds that the grid gives each model.
        only: Compute some cells only, such as ``{"model": ["M1"], "method": ["rs", "nbc"]}``.
        reuse: Other experiments, or folders of experiments such as the published ``results``. Their finished runs with
            the same configuration are copied.
        until: The last stage to run: ``train``, ``evaluate`` or ``verify``. A later call runs the others.
        watcher: Is called with every event.

    Returns:
        The rows of the table, also those of earlier calls, and the tasks that failed.

    Raises:
        UserError: The grid is not valid, data is missing, or another process is at work in ``out``.

    >>> from tempfile import mkdtemp
    >>> from steadynet.experiments.engines.local import Local
    >>> from steadynet.experiments.grid import read_grid
    >>> grid = read_grid("sabr", "smoke")
    >>> outcome = reproduce(grid, Path(mkdtemp()), Local(workers=1), only={"model": ["M1"], "method": ["nbc"]})
    >>> outcome.failures, [row.metric for row in outcome.rows][:2]
    ({}, ['test_acc_percent', 'train_cpu_minutes'])
    """
    grid = dataclasses.replace(grid, files={})  # the user's files as they are now
    cells = cells_of(grid, seeds, only)
    watcher, experiment = watcher or Watcher(), ExperimentDirectory(out)
    with locked(experiment):
        seeds = _write_grid(experiment, grid, engine, cells)
        take_up(experiment, cells, reuse)
        plan = make_plan(experiment, cells, until)
        status = StatusFile(experiment, grid.name, plan)
        watcher.on_start(plan, status)
        merger = _ShardMerger(experiment, plan)

        def on_event(event: Event) -> None:
            status.record(event)
            merger.on_event(event)
            watcher.on_event(event)

        try:
            engine.run(out, plan.left, on_event)
        finally:  # an experiment that is stopped has its table, too
            status.write()
            merger.merge_all()
            rows = table_of(experiment, grid, seeds)
            write_table(experiment, rows)
    return Outcome(rows, status.status.failures())


def table_of(experiment: ExperimentDirectory, grid: Grid, seeds: Sequence[int]) -> list[TableRow]:
    """Return the rows of all cells that have a run, in the order of the grid."""
    cells = [cell for cell in cells_of(grid, seeds) if experiment.run(cell.key).path.is_dir()]
    return rows_of(experiment, grid.name, cells, verification_plans(cells))


class _ShardMerger:
    """Merges the shards of a run at one radius as soon as the last of them has ended."""

    def __init__(self, experiment: ExperimentDirectory, plan: Plan) -> None:
        self.experiment, self.plan = experiment, plan
        self.left: dict[tuple[str, float], set[str]] = {}  # names of tasks by key of the run and radius
        for task in plan.left:
            if isinstance(task.job, VerifyJob):
                self.left.setdefault(_place(task.job), set()).add(task.name)

    def on_event(self, event: Event) -> None:
        job = self.plan.tasks[event.task].job
        if not isinstance(job, VerifyJob) or event.state not in ENDED:
            return
        left = self.left[_place(job)]
        left.discard(event.task)
        if not left:
            self._merge(*_place(job))

    def merge_all(self) -> None:
        for key in self.plan.verifications:
            self._merge(key)

    def _merge(self, key: str, eps: float | None = None) -> None:
        merge_shards(self.experiment.run(key), self.plan.verifications[key], eps)


def _place(job: VerifyJob) -> tuple[str, float]:
    return Path(job.run).name, job.eps


def _write_grid(experiment: ExperimentDirectory, grid: Grid, engine: Engine, cells: Sequence[Cell]) -> tuple[int, ...]:
    """Write the grid with how it was made, and return all seeds. A later call keeps the first date and all seeds."""
    before = Made(seeds=())
    if experiment.grid.is_file():
        before = made_from(read_toml(experiment.grid).get("made", {}), str(experiment.grid))
    now = provenance()
    files = {path: digest for cell in cells for path, digest in cell.files.items()}
    made = Made(
        **{entry.name: getattr(now, entry.name) for entry in dataclasses.fields(now)},
        scale=grid.scale,
        seeds=tuple(sorted({*before.seeds, *(cell.seed for cell in cells)})),
        engine=engine.name,
        started=before.started or now.date,
        files={**before.files, **files},
    )
    write_text(experiment.grid, grid.to_toml(made))
    return made.seeds
