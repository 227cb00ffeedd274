"""A grid of small networks on few digits that runs in this process, to publish it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomllib

from steadynet.experiments import runner
from steadynet.experiments.engines.base import Engine, Pool
from steadynet.experiments.grid import grid_from
from steadynet.experiments.jobs import run_task
from steadynet.experiments.tasks import Event, Task

GRID = """
name = "{name}"

[training]
data = "digits"
eps = 0.05
epochs = 1
batch_size = 64
lr = 2e-3
train_images = 100
threads = 1

[verification]
eps = [0.01, 0.05]
properties = 4
timeout = 0.3
attack_steps = 5

[evaluation]
images = 20
pgd_steps = 3

[parts]
nbc = {{ steps = 1 }}
madry = {{ steps = 1 }}

[models.M1]

[methods.natural]

[methods.{other}]

[methods.near]
phases = "nbc"
init = "natural"
drop = [-100, 100]

[methods.far]
phases = "nbc"
init = "natural"
drop = [100, 101]

[tuning]
trial_epochs = 1
trials = 1
full_trials = 1
"""


@dataclass(frozen=True, kw_only=True)
class Inline(Engine):
    """Runs every task in this process, and is stopped by the user after some."""

    name = "inline"
    summary = "for tests"
    stop_after: int = 1000

    def open(self, root: Path, tasks: Sequence[Task]) -> InlinePool:
        return InlinePool(root, self.stop_after)


class InlinePool(Pool):
    def __init__(self, root: Path, left: int) -> None:
        self.root, self.left = root, left
        self.ended: list[Event] = []

    def has_room(self) -> bool:
        return not self.ended

    def submit(self, task: Task) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.ended = [run_task(task, self.root, lambda event: None)]

    def events(self) -> Iterable[Event]:
        ended, self.ended = self.ended, []
        return ended

    def close(self) -> None:
        pass


class Trainings(runner.Watcher):
    """Notes which networks are trained."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def on_start(self, plan, status) -> None:
        self.plan = plan

    def on_event(self, event: Event) -> None:
        if event.state == "done" and self.plan.tasks[event.task].kind in ("train", "tune"):
            self.labels.append(event.task.partition("-seed-")[0].partition("-")[2])


def run_grid(out: Path, name: str = "own", other: str = "nbc", reuse: Sequence[Path] = (), **settings) -> list[str]:
    """Run the grid; return the methods that were trained for it."""
    trainings = Trainings()
    grid = grid_from(tomllib.loads(GRID.format(name=name, other=other)), None, "grid.toml")
    only = settings.pop("only", None)
    outcome = runner.reproduce(grid, out, Inline(**settings), reuse=reuse, only=only, watcher=trainings)
    assert not outcome.failures
    return trainings.labels
