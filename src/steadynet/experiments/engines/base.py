"""What an engine is: it takes tasks as fast as it can run them, and tells what becomes of them."""

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
    """A way to run tasks. A subclass is one file: ``name``, ``summary``, settings as fields, and ``open``."""

    name: ClassVar[str]
    summary: ClassVar[str]

    retries: int = setting(2, "how often a task whose worker died is tried again")

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise UserError(f"retries = {self.retries} must be 0 or more")

    @abstractmethod
    def open(self, root: Path, tasks: Sequence[Task]) -> Pool:
        """Get ready to run these tasks, whose paths are relative to ``root``."""

    def run(self, root: Path, tasks: Sequence[Task], on_event: OnEvent) -> None:
        """Run every task after those it needs, whose failure blocks it; nothing that fails stops the others."""
        if not tasks:
            return
        with self.open(root, tasks) as pool:
            _Schedule(tasks, self.retries, on_event).run(pool)


class Pool(ABC):
    """Workers at work: used in a ``with`` block, at whose end none of them is left."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def has_room(self) -> bool:
        """Whether another task can be submitted now."""

    def can_take(self, task: Task) -> bool:
        """Whether this task can be submitted now, where there is room for another."""
        return True

    @abstractmethod
    def submit(self, task: Task) -> None:
        """Start a task, or put it in a queue of the engine's own."""

    @abstractmethod
    def events(self) -> Iterable[Event]:
        """What has happened since; waits for a moment if nothing has. Every task ends in ``done`` or ``failed``."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, whatever they are at."""


class _Schedule:
    """Which tasks can start, in their order; which never will."""

    def __init__(self, tasks: Sequence[Task], retries: int, on_event: OnEvent) -> None:
        self.waiting = {task.name: task for task in tasks}
        self.running: dict[str, Task] = {}
        self.retries, self.on_event = retries, on_event
        self.lost: Counter[str] = Counter()

    def run(self, pool: Pool) -> None:
        while self.waiting or self.running:
            self._submit(pool)
            for event in pool.events():
                self._take(event)

    def _submit(self, pool: Pool) -> None:
        for task in list(self.waiting.values()):
            if not pool.has_room():
                return
            if any(name in self.waiting or name in self.running for name in task.needs) or not pool.can_take(task):
                continue
            self.running[task.name] = self.waiting.pop(task.name)
            pool.submit(task)
            self.on_event(Event(task.name, "running"))

    def _take(self, event: Event) -> None:
        task = self.running.get(event.task)
        if task is None:
            return  # of a worker that was given up
        if event.state == "running":
            self.on_event(event)
            return
        del self.running[event.task]
        if event.lost and self.lost[event.task] < self.retries:
            self.lost[event.task] += 1
            self.waiting = {event.task: task, **self.waiting}
            self.on_event(Event(event.task, "waiting", note=f"{event.note}; tried again"))
            return
        self.on_event(event)
        if event.state == "failed":
            self._block(event.task)

    def _block(self, failed: str) -> None:
        for task in [task for task in self.waiting.values() if failed in task.needs]:
            if self.waiting.pop(task.name, None):
                self.on_event(Event(task.name, "blocked", note=f"{failed} failed"))
                self._block(task.name)
