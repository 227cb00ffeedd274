"""Take up what other experiments have finished: nothing is trained twice that has the same configuration.

A published run may be without its weights. It is taken up only if it is finished: evaluated, every property decided.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from steadynet.errors import UserError
from steadynet.experiments.cells import Cell
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.plan import is_evaluated, is_trained, verification_plans
from steadynet.experiments.published import is_without_weights, read_published
from steadynet.experiments.shards import VerificationPlan
from steadynet.experiments.tuning import missed_window
from steadynet.runs.directory import RunDirectory


def is_finished(run: RunDirectory, cell: Cell, plan: VerificationPlan) -> bool:
    """Return whether a run was trained, evaluated as its cell asks, and every planned property was decided."""
    if missed_window(run.path):
        return True
    return is_trained(run) and is_evaluated(run, cell) and not plan.undecided_shards(run)


def take_up(experiment: ExperimentDirectory, cells: Sequence[Cell], others: Sequence[Path]) -> None:
    """Copy the runs of other experiments that have the configuration of these cells, and that are not here yet.

    A run without weights that is not finished is removed: a network that must be evaluated, verified or trained further
    is trained again, if no experiment has its weights.

    Args:
        experiment: The experiment that takes up runs.
        cells: Its cells.
        others: Experiments, or folders of experiments.

    Raises:
        UserError: One of the others holds no experiment.
    """
    shelf, plans = _Shelf(others), verification_plans(cells)
    for cell in cells:
        run, plan = experiment.run(cell.key), plans[cell.key]
        if is_without_weights(run) and not is_finished(run, cell, plan):
            shutil.rmtree(run.path)
        if not run.path.exists():
            shelf.copy(cell, run, plan)
    untrained = [cell for cell in cells if cell.init and not is_trained(experiment.run(cell.key))]
    for start in {cell.init.key: cell.init for cell in untrained if cell.init}.values():
        run = experiment.run(start.key)
        if is_without_weights(run):
            shutil.rmtree(run.path)
        if not run.path.exists():
            shelf.copy(start, run, None)


class _Shelf:
    """The runs of other experiments, by the hash of their configuration."""

    def __init__(self, others: Sequence[Path]) -> None:
        self.runs: dict[str, list[RunDirectory]] = {}
        self.weights: dict[str, Path] = {}  # of published networks, by their hash: two grids may share one file
        for experiment in [found for other in others for found in _experiments(other)]:
            for path in sorted(experiment.runs.iterdir()):
                run = RunDirectory(path)
                self.runs.setdefault(_digest(path.name), []).append(run)
                if run.weights.is_file() and (record := read_published(run)):
                    self.weights.setdefault(record.network, run.weights)

    def copy(self, cell: Cell, run: RunDirectory, plan: VerificationPlan | None) -> None:
        """Copy the run of a cell, if there is one: finished, or with weights. Without a plan, it must have weights."""
        there = self.runs.get(_digest(cell.key), [])
        finished = [other for other in there if plan and is_finished(other, cell, plan)]
        chosen = next(iter([*finished, *(other for other in there if self._weights(other))]), None)
        if chosen is None:
            return
        copy = RunDirectory(run.path.with_name(f".{run.path.name}.made"))
        shutil.rmtree(copy.path, ignore_errors=True)
        shutil.copytree(chosen.path, copy.path)
        if (weights := self._weights(chosen)) and not copy.weights.is_file():
            shutil.copyfile(weights, copy.weights)
        copy.path.rename(run.path)

    def _weights(self, run: RunDirectory) -> Path | None:
        if run.weights.is_file():
            return run.weights
        record = read_published(run)
        return self.weights.get(record.network) if record else None


def _digest(key: str) -> str:
    """Return the hash at the end of a run's name: another grid may have other names for the same configuration."""
    return key.rpartition("-")[2]


def _experiments(folder: Path) -> Iterator[ExperimentDirectory]:
    """Return the experiment in a folder, or those in its folders."""
    candidates = [folder, *sorted(folder.glob("*"))] if folder.is_dir() else []
    found = [ExperimentDirectory(path) for path in candidates if ExperimentDirectory(path).runs.is_dir()]
    if not found:
        raise UserError(f"--reuse {folder}: it holds no experiment")
    yield from found
