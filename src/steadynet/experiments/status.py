"""The progress of an experiment: ``status.json``, which is rewritten while the experiment runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from steadynet.errors import UserError
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.lock import is_locked
from steadynet.experiments.plan import Plan
from steadynet.experiments.tasks import Event, Kind, State
from steadynet.files import read_json, record_from, write_json

WRITE_EVERY = 1.0  # seconds


@dataclass(frozen=True)
class TaskStatus:
    """The state of one task. Times are in seconds; points in time count from 1970."""

    kind: Kind
    group: str = ""  # tasks of one kind and group take about as long
    state: State = "waiting"
    note: str = ""
    done: int = 0  # of ``total`` batches, images or properties
    total: int = 0
    started: float | None = None
    seconds: float | None = None  # how long it took
    first_done: int = 0  # how much was done at the first report: a task that continues does not start at 0
    first_reported: float | None = None  # when that was

    def after(self, event: Event, now: float) -> TaskStatus:
        """Return the state after an event.

        >>> TaskStatus("train").after(Event("a", "running"), now=10.0).after(Event("a", "done"), now=12.0).seconds
        2.0
        """
        result = self
        if event.state == "running" and self.state != "running":
            result = replace(result, started=now, first_reported=None)
        elif event.state in ("done", "failed"):
            started = now if self.started is None else self.started
            result = replace(result, seconds=round(now - started, 3))
        if event.total:
            # tuning trains one network after the other, so that ``done`` may fall
            if result.first_reported is None or event.done < result.done:
                result = replace(result, first_done=event.done, first_reported=now)
            result = replace(result, done=event.done, total=event.total)
        return replace(result, state=event.state, note=event.note)

    def share_left(self) -> float:
        """Return the share of the task that is still to do."""
        return 1 - self.done / self.total if self.state == "running" and self.total else 1.0

    def expected_seconds(self, now: float) -> float | None:
        """Return how long a running task takes in all, from its speed since its first report; None until it is known.

        >>> task = TaskStatus("train", state="running", first_done=30, first_reported=1000.0, done=50, total=100)
        >>> task.expected_seconds(now=1010.0)
        50.0
        """
        if self.state != "running" or self.first_reported is None or self.done <= self.first_done:
            return None
        return max(0.0, now - self.first_reported) * self.total / (self.done - self.first_done)

    def seconds_left(self, now: float) -> float | None:
        """Return how long a running task still takes; None until it is known.

        >>> task = TaskStatus("verify", state="running", first_reported=1000.0, done=8, total=20)
        >>> task.seconds_left(now=1160.0)  # eight after 160 s, so that twelve more take 240 s
        240.0
        """
        whole = self.expected_seconds(now)
        return None if whole is None else whole * self.share_left()


@dataclass(frozen=True)
class ExperimentStatus:
    """The state of all tasks of an experiment by name; ``at_work`` says whether a process is running it."""

    name: str
    tasks: Mapping[str, TaskStatus]
    started: float = 0.0
    updated: float = 0.0
    at_work: bool = False

    def counts(self) -> Counter[str]:
        """Return how many tasks are in each state."""
        return counts(self.tasks.values())

    def failures(self) -> dict[str, str]:
        """Return the reason of each failed task by its name."""
        return {name: task.note for name, task in self.tasks.items() if task.state == "failed"}

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON; what is not known of a task is left out."""
        tasks = {
            name: {key: value for key, value in vars(task).items() if value is not None}
            for name, task in self.tasks.items()
        }
        return vars(self) | {"tasks": tasks}


class StatusFile:
    """Keeps the status of an experiment in its file up to date."""

    def __init__(self, experiment: ExperimentDirectory, name: str, plan: Plan) -> None:
        self.path, self.name, self.started = experiment.status, name, time.time()
        self._written = 0.0
        earlier = _earlier_tasks(experiment)
        self._tasks: dict[str, TaskStatus] = {}
        for task in plan.tasks.values():
            is_done = task.name in plan.done
            # how long a task took tells how long others will take
            seconds = earlier[task.name].seconds if is_done and task.name in earlier else None
            self._tasks[task.name] = TaskStatus(
                task.kind, task.group, "done" if is_done else "waiting", seconds=seconds
            )
        self.write()

    @property
    def status(self) -> ExperimentStatus:
        """The status now."""
        return ExperimentStatus(self.name, self._tasks, self.started, time.time(), at_work=True)

    def record(self, event: Event) -> None:
        """Change the state of a task, and write the file if that is due."""
        self._tasks[event.task] = self._tasks[event.task].after(event, time.time())
        if event.state != "running" or time.monotonic() - self._written > WRITE_EVERY:
            self.write()

    def write(self) -> None:
        """Write the file."""
        self._written = time.monotonic()
        content = self.status.to_json()
        del content["at_work"]  # who reads the file asks the lock
        write_json(self.path, content)


def _earlier_tasks(experiment: ExperimentDirectory) -> Mapping[str, TaskStatus]:
    try:
        return _read(experiment).tasks
    except UserError:
        return {}


def _read(experiment: ExperimentDirectory) -> ExperimentStatus:
    """Read ``status.json``. Keys of tasks that an older version wrote are ignored."""
    content = read_json(experiment.status)
    known = {entry.name for entry in fields(TaskStatus)}
    try:
        tasks = {name: {key: task[key] for key in task if key in known} for name, task in content["tasks"].items()}
        return record_from(ExperimentStatus, content | {"tasks": tasks})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{experiment.status} is damaged: run the experiment again") from error


def read_status(experiment: ExperimentDirectory) -> ExperimentStatus:
    """Read the status of an experiment.

    Returns:
        The status. If no process is running the experiment, the tasks that were running are waiting.

    Raises:
        UserError: The folder holds no experiment, or the file is damaged.
    """
    if not experiment.status.is_file():
        raise UserError(f"{experiment.path} holds no experiment (it has no {experiment.status.name})")
    status = replace(_read(experiment), at_work=is_locked(experiment))
    if status.at_work:
        return status
    stopped = {
        name: replace(task, state="waiting") if task.state == "running" else task for name, task in status.tasks.items()
    }
    return replace(status, tasks=stopped)


def counts(tasks: Iterable[TaskStatus]) -> Counter[str]:
    """Count the tasks in each state."""
    return Counter(task.state for task in tasks)


class Eta(NamedTuple):
    """How long an experiment still takes."""

    seconds: float
    at_least: bool  # nothing is known of some tasks yet, which come on top


@dataclass
class _Lengths:
    """How long tasks take, by kind and group, and by kind alone."""

    found: dict[tuple[Kind, str | None], list[float]] = field(default_factory=dict)

    def add(self, task: TaskStatus, seconds: float) -> None:
        for key in ((task.kind, task.group), (task.kind, None)):
            self.found.setdefault(key, []).append(seconds)

    def mean(self, task: TaskStatus) -> float | None:
        known = self.found.get((task.kind, task.group)) or self.found.get((task.kind, None))
        return sum(known) / len(known) if known else None


def eta(status: ExperimentStatus) -> Eta | None:
    """Estimate the time until all tasks are done; None while nothing is known of any task that is left.

    A task is expected to take as long as others of its kind and group took, or else as others of its kind.

    >>> done = TaskStatus("train", "M1", "done", seconds=10.0)
    >>> tasks = {"a": done, "b": TaskStatus("train", "M1"), "c": TaskStatus("train", "M3")}
    >>> eta(ExperimentStatus("small", tasks))
    Eta(seconds=20.0, at_least=False)
    >>> eta(ExperimentStatus("small", tasks | {"d": TaskStatus("verify", "M1")}))
    Eta(seconds=20.0, at_least=True)
    """
    lengths = _Lengths()
    for task in status.tasks.values():
        seconds = task.seconds or task.expected_seconds(status.updated)
        if seconds:
            lengths.add(task, seconds)
    left = [task for task in status.tasks.values() if task.state in ("waiting", "running")]
    known = [mean * task.share_left() for task in left if (mean := lengths.mean(task)) is not None]
    if left and not known:
        return None
    workers = max(1, sum(task.state == "running" for task in left))
    return Eta(sum(known) / workers, at_least=len(known) < len(left))
