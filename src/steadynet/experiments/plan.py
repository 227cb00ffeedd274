"""From cells to tasks: what is there already, and what is left to do."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadynet import data as data_sets
from steadynet.errors import UserError
from steadynet.experiments import tuning
from steadynet.experiments.cells import RELATIVE, Cell
from steadynet.experiments.directory import ExperimentDirectory, trials_path
from steadynet.experiments.shards import Ask, put_together
from steadynet.experiments.tasks import Task
from steadynet.files import write_text
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import read_evaluation
from steadynet.verification.verdicts import read_rows


@dataclass
class Plan:
    """Every task of some cells, in order; those in ``done`` are there already."""

    tasks: dict[str, Task] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    asks: dict[str, Ask] = field(default_factory=dict)  # by key of the run
    several_seeds: bool = False

    def words(self, cell: Cell, what: str) -> dict[str, Any]:
        """How a task is called, and which others take about as long."""
        seed = f" seed {cell.seed}" if self.several_seeds else ""
        return {"label": f"{cell.model} {cell.method}{seed}: {what}", "group": cell.model}

    @property
    def left(self) -> list[Task]:
        """The tasks still to be done."""
        return [task for name, task in self.tasks.items() if name not in self.done]

    def add(self, task: Task, done: bool) -> None:
        """A task; two cells of the same configuration share theirs."""
        self.tasks[task.name] = task
        if done:
            self.done.add(task.name)


def planned(root: ExperimentDirectory, cells: Sequence[Cell]) -> Plan:
    """The tasks of these cells and of what they start from."""
    plan, chosen = Plan(several_seeds=len({cell.seed for cell in cells}) > 1), _images(cells)
    for cell in cells:
        if cell.init:
            _add_training(plan, root, cell.init)
        _add_training(plan, root, cell)
        _add_evaluation(plan, root, cell)
        _add_verification(plan, root, cell, chosen[cell.data, _count(cell)])
    _write_tasks(root, chosen)
    return plan


def asks_of(cells: Sequence[Cell]) -> dict[str, Ask]:
    """What is asked of each run, by key."""
    chosen = _images(cells)
    return {cell.key: cell.ask(chosen[cell.data, _count(cell)]) for cell in cells}


def _count(cell: Cell) -> tuple[int, int | None]:
    return cell.verification.get("per_class", 10), cell.verification.get("tasks")


def _images(cells: Sequence[Cell]) -> dict[tuple[str, tuple[int, int | None]], list[int]]:
    """The test images of each data set and number of tasks, chosen once, whatever the method."""
    loaded = {name: _loaded(name) for name in {cell.data for cell in cells}}
    return {(cell.data, _count(cell)): cell.index(loaded[cell.data]) for cell in cells}


def _loaded(name: str) -> data_sets.Dataset:
    try:
        return data_sets.load(name)
    except UserError as error:
        own = data_sets.own_file(name)
        hint = f" ({RELATIVE})" if own and not own.is_file() else ""
        raise UserError(f"data = '{name}': {error}{hint}") from error


def _write_tasks(root: ExperimentDirectory, chosen: dict[tuple[str, tuple[int, int | None]], list[int]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["data", "test_image"])
    writer.writerows(sorted({(data, index) for (data, _), images in chosen.items() for index in images}))
    write_text(root.test_images, text.getvalue())


def training_name(cell: Cell) -> str:
    """The task that makes a cell's network."""
    return f"{cell.key}/{'tune' if cell.drop else 'train'}"


def _add_training(plan: Plan, root: ExperimentDirectory, cell: Cell) -> None:
    name, run = training_name(cell), root.run(cell.key)
    spec: dict[str, Any] = {"run": cell.run, "settings": cell.settings}
    reads: tuple[str, ...] = (cell.run,)
    writes: tuple[str, ...] = (cell.run,)
    if cell.init:
        reads = (cell.init.run, *reads)
    if cell.drop:
        trials = trials_path(cell.key)
        spec |= {"drop": list(cell.drop), "tuning": cell.tuning, "trials": trials}
        reads, writes = (*reads, trials), (*writes, trials)
    task = Task(
        name,
        "tune" if cell.drop else "train",
        spec,
        needs=(training_name(cell.init),) if cell.init else (),
        reads=reads,
        writes=writes,
        **cell.demand("train"),
        **plan.words(cell, "tune" if cell.drop else "train"),
    )
    plan.add(task, run.weights.is_file() or tuning.missed(run.path))


def _add_evaluation(plan: Plan, root: ExperimentDirectory, cell: Cell) -> None:
    spec = {
        "run": cell.run,
        "data": cell.data,
        "radii": list(cell.radii),
        "pgd_steps": cell.pgd_steps,
        "images": cell.evaluation.get("images"),
    }
    demand = cell.demand("evaluate")
    needs, reads, writes = (training_name(cell),), _network(cell), (RunDirectory(Path(cell.run)).evaluation.as_posix(),)
    task = Task(
        f"{cell.key}/evaluate",
        "evaluate",
        spec | _device(demand),
        needs,
        reads,
        writes,
        **demand,
        **plan.words(cell, "evaluate"),
    )
    run = root.run(cell.key)
    plan.add(task, tuning.missed(run.path) or evaluated(run, cell))


def _network(cell: Cell) -> tuple[str, ...]:
    """The files that a trained network is loaded from; or the record that tuning found none."""
    run = RunDirectory(Path(cell.run))
    files = (run.config, run.weights, run.model_source, run.tuning)
    return tuple(path.as_posix() for path in files)


def _device(demand: dict[str, Any]) -> dict[str, str]:
    return {"device": "auto" if demand["gpus"] else "cpu"}


def evaluated(run: RunDirectory, cell: Cell) -> bool:
    """Whether a run was measured as the cell asks."""
    found = read_evaluation(run)
    if found is None or found.accuracy_images is None:
        return False
    images = min(cell.evaluation.get("images", found.accuracy_images), found.accuracy_images)
    steps = [*(other.pgd_steps for other in found.other_attacks), found.pgd_steps]
    radii = [row.eps for row in found.radii]
    return (found.images, steps, radii) == (images, cell.pgd_steps, list(cell.radii))


def _add_verification(plan: Plan, root: ExperimentDirectory, cell: Cell, images: list[int]) -> None:
    run, ask = root.run(cell.key), cell.ask(images)
    plan.asks[cell.key] = ask
    if tuning.missed(run.path):
        return
    put_together(run, ask)  # what a call that was stopped had decided
    demand, needs = cell.demand("verify"), (training_name(cell),)
    still_open = {name: left for name, _, left in ask.open_shards(read_rows(run))}
    for shard, eps, index in ask.open_shards([]):
        spec = {
            "run": cell.run,
            "data": cell.data,
            "shard": shard,
            "eps": eps,
            "index": still_open.get(shard, index),
            "verifier": ask.verifier,
            "verifier_settings": ask.verifier_settings,
        }
        name = f"{cell.key}/verify-{shard}"
        words = plan.words(cell, f"verify ε {eps:.3g} #{int(shard[-3:]) + 1}")
        writes = (RunDirectory(Path(cell.run)).shard(shard).path.as_posix(),)
        task = Task(name, "verify", spec | _device(demand), needs, _network(cell), writes, **demand, **words)
        plan.add(task, shard not in still_open)
