"""The directory of an experiment: the only place that knows what its files are called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from steadynet.runs.directory import RunDirectory

_RUNS, _TRIALS = "runs", "trials"


@dataclass(frozen=True)
class ExperimentDirectory:
    """One experiment on disk: its grid, its runs, its table and its status.

    >>> experiment = ExperimentDirectory(Path("experiments/beta-laptop"))
    >>> experiment.run("C1-nbc").weights.as_posix()
    'experiments/beta-laptop/runs/C1-nbc/weights.safetensors'
    """

    path: Path

    @property
    def grid(self) -> Path:
        """The grid at its scale, complete, and how the experiment was made."""
        return self.path / "grid.toml"

    @property
    def test_images(self) -> Path:
        """The test images of the properties, the same for every method."""
        return self.path / "tasks.csv"

    @property
    def table_csv(self) -> Path:
        """The table, for spreadsheets."""
        return self.path / "table.csv"

    @property
    def table_json(self) -> Path:
        """The table, for programs."""
        return self.path / "table.json"

    @property
    def status(self) -> Path:
        """The state of every task, rewritten while the experiment runs."""
        return self.path / "status.json"

    @property
    def lock(self) -> Path:
        """The file that the process at work has locked."""
        return self.path / ".lock"

    @property
    def leases(self) -> Path:
        """The folder with one file per task that the engine ``ray`` has sent out."""
        return self.path / ".leases"

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.path / _RUNS

    def run(self, key: str) -> RunDirectory:
        """The run of this key."""
        return RunDirectory(self.runs / key)

    def is_experiment(self) -> bool:
        """Whether this folder holds an experiment."""
        return self.grid.is_file()


def run_path(key: str) -> str:
    """The path of a run, relative to the experiment's directory: tasks may run on other machines.

    >>> run_path("C1-nbc")
    'runs/C1-nbc'
    """
    return f"{_RUNS}/{key}"


def trials_path(key: str) -> str:
    """The path of the trials that tune a run, relative to the experiment's directory."""
    return f"{_TRIALS}/{key}"


def experiments_below(folder: Path) -> Iterator[ExperimentDirectory]:
    """The experiments in a folder that were started, sorted by name."""
    for path in sorted(folder.glob("*")):
        if ExperimentDirectory(path).status.is_file():
            yield ExperimentDirectory(path)
