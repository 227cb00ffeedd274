"""The base classes of engines, and the schedule that gives each task to a pool of workers when it can start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from steadynet.errors import UserError
from steadynet.experiments.tasks import Event, Task
from steadynet.plugins import setting

OnEvent = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True)
class Engine(ABC):
    """A way to run tasks.

    A subclass is one file. It defines ``name``, ``summary``, its settings as fields, and :meth:`open`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    retries: int = setting(2, "how often a task whose worker died is tried again")

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise UserError(f"retries = {self.retries} must be 0 or more")

    @abstractmethod
    def open(self, root: Path, tasks: Sequence[Task]) -> Pool:
        """Start the workers.

        Args:
            root: The experiment's directory, which the paths of the tasks are relative to.
            tasks: All tasks that will be submitted.

        Returns:
            The pool of workers.
        """

    def run(self, root: Path, tasks: Sequence[Task], on_event: OnEvent) -> None:
        """Run all tasks, each after those that it needs. If a task fails, the others continue.

        Args:
            root: The experiment's directory, which the paths of the tasks are relative to.
            tasks: The tasks, in the order in which they should start.
            on_event: Called in this thread with every event.
        """
        if not tasks:
            return
        with self.open(root, tasks) as pool:
            _Schedule(tasks, self.retries, on_event).run(pool)


class Pool(ABC):
    """The workers of an engine. It is used in a ``with`` block; at its end no worker is left."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def has_room(self) -> bool:
        """Return whether another task can be submitted now."""

    def can_take(self, task: Task) -> bool:
        """Return whether this task can be submitted now, given that the pool has room."""
        return True

    @abstractmethod
    def submit(self, task: Task) -> None:
        """Start a task, or put it into the engine's own queue."""

    @abstractmethod
    def events(self) -> Iterable[Event]:
        """Return the events since the last call; wait a moment if there are none.

        The last event of every task has the state ``done`` or ``failed``.
        """

    @abstractmethod
    def close(self) -> None:
        """End all workers, also those that are running a task."""


class _Schedule:
    """Submits tasks in their order, each when the tasks that it needs are done."""

    def __init__(self, tasks: Sequence[Task], retries: int, on_event: OnEvent) -> None:
        self.waiting = {task.name: task for task in tasks}
        self.running: dict[str, Task] = {}
        self.retries, self.on_event = retries, on_event
        self.times_lost: Counter[str] = Counter()

    def run(self, pool: Pool) -> None:
        while self.waiting or self.running:
            self._submit(pool)
            for event in pool.events():
                self._handle(event)

    def _submit(self, pool: Pool) -> None:
        for task in list(self.waiting.values()):
            if not pool.has_room():
                return
            if any(name in self.waiting or name in self.running for name in task.needs) or not pool.can_take(task):
                continue
            self.running[task.name] = self.waiting.pop(task.name)
            pool.submit(task)
            self.on_event(Event(task.name, "running"))

    def _handle(self, event: Event) -> None:
        task = self.running.get(event.task)
        if task is None:
            return  # the event of a worker that was given up
        if event.state == "running":
            self.on_event(event)
            return
        del self.running[event.task]
        if event.lost and self.times_lost[event.task] < self.retries:
            self.times_lost[event.task] += 1
            self.waiting = {event.task: task, **self.waiting}
            self.on_event(Event(event.task, "waiting", note=f"{event.note}; tried again"))
            return
        self.on_event(event)
        if event.state == "failed":
            self._block(event.task)

    def _block(self, failed: str) -> None:
        """Give up the tasks that need a failed one, and those that need these."""
        for task in [task for task in self.waiting.values() if failed in task.needs]:
            if self.waiting.pop(task.name, None):
                self.on_event(Event(task.name, "blocked", note=f"{failed} failed"))
                self._block(task.name)
