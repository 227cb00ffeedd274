"""Find runs and experiments in folders, and read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from steadynet.errors import UserError
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.networks import is_onnx
from steadynet.report.read_experiment import read_experiment
from steadynet.report.records import Experiment
from steadynet.report.single_runs import read_single_runs
from steadynet.runs.directory import RunDirectory


def collect(folders: Sequence[Path]) -> list[Experiment]:
    """Read every run and experiment in some folders.

    Runs that belong to no experiment are grouped by data set; each group is treated as one experiment.

    Args:
        folders: Run directories, experiments, or folders that hold some.

    Returns:
        The experiments, then the groups of single runs.

    Raises:
        UserError: If a folder does not exist or holds no runs, or if a file is damaged.
    """
    experiments, single = [], []
    for folder in map(_place, folders):
        found = list(_found(folder))
        if not found:
            problem = "holds no runs" if folder.exists() else "does not exist"
            raise UserError(f"{folder} {problem}: give run directories, or folders that steadynet reproduce wrote")
        for path in found:
            if ExperimentDirectory(path).is_experiment():
                experiments.append(read_experiment(ExperimentDirectory(path)))
            else:
                single.append(path)
    return experiments + read_single_runs(dict.fromkeys(single))


def _place(path: Path) -> Path:
    """Return the run directory that was made of an ONNX file; any other path itself."""
    if not is_onnx(str(path)) or path.is_dir():
        return path
    run = RunDirectory.of_network(path)
    if not run.is_run():
        raise UserError(f"there are no results of {path} in {run.path}: steadynet verify {path} --data … --eps …")
    return run.path


def _found(folder: Path, depth: int = 2) -> Iterator[Path]:
    """The runs and experiments that a folder is or holds."""
    if ExperimentDirectory(folder).is_experiment() or RunDirectory(folder).is_run():
        yield folder
    elif depth and folder.is_dir():
        for child in sorted(folder.iterdir()):
            if child.is_dir() and not child.is_symlink():
                yield from _found(child, depth - 1)
