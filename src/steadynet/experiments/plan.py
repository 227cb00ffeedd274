"""The tasks of an experiment: which there are for each cell, and which of them are done."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steadynet import data as data_sets
from steadynet.errors import UserError
from steadynet.experiments.cells import RELATIVE, Cell
from steadynet.experiments.directory import ExperimentDirectory, trials_path
from steadynet.experiments.grid_tables import Demand
from steadynet.experiments.shards import Shard, VerificationPlan, merge_shards
from steadynet.experiments.tasks import EvaluateJob, Job, Stage, Task, TrainJob, TuneJob, VerifyJob
from steadynet.experiments.tuning import missed_window
from steadynet.files import write_text
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import read_evaluation

ImageCount = tuple[int, int | None]  # test images per class, and at most in all


@dataclass
class Plan:
    """All tasks of an experiment by name, in order; ``done`` are the names of those that are done."""

    tasks: dict[str, Task] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    verifications: dict[str, VerificationPlan] = field(default_factory=dict)  # by key of the run

    @property
    def left(self) -> list[Task]:
        """The tasks that are still to do."""
        return [task for name, task in self.tasks.items() if name not in self.done]

    def add(self, task: Task, done: bool) -> None:
        """Add a task. Two cells of the same configuration have the same tasks."""
        self.tasks[task.name] = task
        if done:
            self.done.add(task.name)


def make_plan(experiment: ExperimentDirectory, cells: Sequence[Cell], until: Stage = "verify") -> Plan:
    """Plan the tasks of these cells and of the runs that they start from, up to and including the stage ``until``.

    Verdicts that a stopped process has left in shards are merged, and ``tasks.csv`` is written.
    """
    plan, images = Plan(), _images(cells)
    for cell in cells:
        planner = _Planner(plan, experiment, cell, several_seeds=len({cell.seed for cell in cells}) > 1)
        if cell.init and not is_trained(experiment.run(cell.key)):
            planner.add_training(cell.init)
        planner.add_training(cell)
        if until != "train":
            planner.add_evaluation()
        if until == "verify":
            planner.add_verification(images[cell.data, _image_count(cell)])
    _write_test_images(experiment, images)
    return plan


def verification_plans(cells: Sequence[Cell]) -> dict[str, VerificationPlan]:
    """Return the properties of each cell by the key of its run."""
    images = _images(cells)
    return {cell.key: cell.verification_plan(images[cell.data, _image_count(cell)]) for cell in cells}


def _image_count(cell: Cell) -> ImageCount:
    return cell.verification.per_class, cell.verification.properties


def _images(cells: Sequence[Cell]) -> dict[tuple[str, ImageCount], list[int]]:
    """Choose the test images of each data set and count once, so that all methods have the same."""
    loaded = {name: _load_data(name) for name in {cell.data for cell in cells}}
    return {(cell.data, _image_count(cell)): cell.test_images(loaded[cell.data]) for cell in cells}


def _load_data(name: str) -> data_sets.Dataset:
    try:
        return data_sets.load(name)
    except UserError as error:
        own = data_sets.own_file(name)
        hint = f" ({RELATIVE})" if own and not own.is_file() else ""
        raise UserError(f"data = '{name}': {error}{hint}") from error


def _write_test_images(experiment: ExperimentDirectory, images: dict[tuple[str, ImageCount], list[int]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["data", "test_image"])
    writer.writerows(sorted({(data, index) for (data, _), chosen in images.items() for index in chosen}))
    write_text(experiment.test_images, text.getvalue())


def is_trained(run: RunDirectory) -> bool:
    """Return whether a training has ended: with a network, which may be published elsewhere, or outside its window."""
    return run.weights.is_file() or run.published.is_file() or missed_window(run.path)


def is_evaluated(run: RunDirectory, cell: Cell) -> bool:
    """Return whether a run was evaluated as its cell asks."""
    found = read_evaluation(run)
    if found is None or found.accuracy_images is None:
        return False
    images = min(cell.evaluation.images or found.accuracy_images, found.accuracy_images)
    steps = (*(other.pgd_steps for other in found.other_attacks), found.pgd_steps)
    radii = tuple(row.eps for row in found.radii)
    return (found.images, steps, radii) == (images, cell.evaluation.attacks, cell.radii)


@dataclass(frozen=True)
class _Planner:
    """Adds the tasks of one cell to a plan."""

    plan: Plan
    experiment: ExperimentDirectory
    cell: Cell
    several_seeds: bool

    def add_training(self, cell: Cell) -> None:
        run = self.experiment.run(cell.key)
        job: Job = TrainJob(cell.run, cell.settings)
        reads: tuple[str, ...] = (cell.init.run, cell.run) if cell.init else (cell.run,)
        writes: tuple[str, ...] = (cell.run,)
        if cell.variant.window and cell.budget:
            job = TuneJob(cell.run, cell.settings, cell.variant.window, cell.budget, trials_path(cell.key))
            reads, writes = (*reads, job.trials), (*writes, job.trials)
        needs = (_training_name(cell.init),) if cell.init else ()
        self._add(cell, _training_name(cell), job, needs, reads, writes, job.kind, is_trained(run))

    def add_evaluation(self) -> None:
        cell, run = self.cell, RunDirectory(Path(self.cell.run))
        job = EvaluateJob(
            cell.run,
            cell.data,
            cell.radii,
            cell.evaluation.attacks,
            cell.evaluation.images,
            _device(cell.demand("evaluate")),
        )
        made = self.experiment.run(cell.key)
        done = missed_window(made.path) or is_evaluated(made, cell)
        name, needs, writes = f"{cell.key}/evaluate", (_training_name(cell),), (run.evaluation.as_posix(),)
        self._add(cell, name, job, needs, _network_files(cell), writes, "evaluate", done)

    def add_verification(self, images: Sequence[int]) -> None:
        cell, run = self.cell, self.experiment.run(self.cell.key)
        verification = cell.verification_plan(images)
        self.plan.verifications[cell.key] = verification
        if missed_window(run.path):
            return
        merge_shards(run, verification)
        undecided = {shard.name: shard for shard in verification.undecided_shards(run)}
        for shard in verification.shards():
            self._add_shard(undecided.get(shard.name, shard), verification, done=shard.name not in undecided)

    def _add_shard(self, shard: Shard, verification: VerificationPlan, done: bool) -> None:
        cell = self.cell
        job = VerifyJob(
            cell.run,
            cell.data,
            shard.name,
            shard.eps,
            shard.index,
            verification.verifier,
            verification.verifier_settings,
            _device(cell.demand("verify")),
        )
        name, needs = f"{cell.key}/verify-{shard.name}", (_training_name(cell),)
        writes = (RunDirectory(Path(cell.run)).shard(shard.name).path.as_posix(),)
        words = f"verify ε {shard.eps:.3g} #{shard.number + 1}"
        self._add(cell, name, job, needs, _network_files(cell), writes, words, done)

    def _add(
        self,
        cell: Cell,
        name: str,
        job: Job,
        needs: tuple[str, ...],
        reads: tuple[str, ...],
        writes: tuple[str, ...],
        words: str,
        done: bool,
    ) -> None:
        demand = cell.demand(job.kind)
        seed = f" seed {cell.seed}" if self.several_seeds else ""
        label = f"{cell.model} {cell.variant.label}{seed}: {words}"
        task = Task(name, job, needs, reads, writes, demand.cpus, demand.gpus, label, group=cell.model)
        self.plan.add(task, done)


def _training_name(cell: Cell) -> str:
    """Return the name of the task that makes a cell's network."""
    return f"{cell.key}/{'tune' if cell.variant.window else 'train'}"


def _network_files(cell: Cell) -> tuple[str, ...]:
    """Return the files that a network is loaded from, and the record that says whether tuning reached its window."""
    run = RunDirectory(Path(cell.run))
    return tuple(path.as_posix() for path in (run.config, run.weights, run.model_source, run.tuning))


def _device(demand: Demand) -> str:
    return "auto" if demand.gpus else "cpu"
