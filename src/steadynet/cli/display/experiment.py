"""The progress of an experiment: live, and as ``steadynet status`` shows it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType

from rich.progress import TaskID

from steadynet.cli.display.numbers import duration
from steadynet.cli.display.tables import table
from steadynet.cli.display.terminal import console, messages, progress_bar
from steadynet.experiments.plan import Plan
from steadynet.experiments.runner import Watcher
from steadynet.experiments.status import Eta, ExperimentStatus, StatusFile, counts, eta
from steadynet.experiments.tasks import Event, State

STATES: tuple[State, ...] = ("done", "running", "waiting", "failed", "blocked")  # in the order in which they are shown
BAR_INTERVAL = 0.5  # seconds: a cluster sends hundreds of events per second, and a grid may have thousands of tasks
LINE_INTERVAL = 60.0  # seconds between two lines about the running tasks, where there is no terminal


class ExperimentDisplay(Watcher):
    """Shows one progress bar for the experiment and one for each running task.

    Where there is no terminal, it prints one line for each task that ends and, once a minute, one line about the tasks
    that run. Use it as a context manager around the experiment.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.progress = progress_bar()
        self.bars: dict[str, TaskID] = {}
        self.bar_moved, self.line_printed = 0.0, time.monotonic()

    def __enter__(self) -> ExperimentDisplay:
        self.progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.__exit__(kind, error, trace)

    def on_start(self, plan: Plan, status: StatusFile) -> None:
        """Print how much there is to do, and show the bar of the experiment."""
        self.file, self.total, self.tasks = status, len(plan.tasks), plan.tasks
        console.print(f"{self.title}: {self.total} tasks, {len(plan.done)} of them done", soft_wrap=True)
        self.whole = self.progress.add_task("all tasks", total=self.total, completed=len(plan.done), note="", left="")

    def on_event(self, event: Event) -> None:
        """Move the bars, or print a line."""
        if event.state == "running":
            self._move_bar(event)
            if time.monotonic() - self.bar_moved > BAR_INTERVAL:
                self._move_whole()
            return
        if event.task in self.bars:
            self.progress.remove_task(self.bars.pop(event.task))
        found = self._move_whole()
        if event.state != "done" or self.progress.disable:
            note = f": {event.note}" if event.note else ""
            messages.print(
                f"{found['done']}/{self.total} {event.task} {event.state}{note}", soft_wrap=True, markup=False
            )

    def _move_bar(self, event: Event) -> None:
        """Move the bar of a running task, or add one."""
        bar = self.bars.get(event.task)
        if bar is None:
            label = self.tasks[event.task].label or event.task
            self.bars[event.task] = self.progress.add_task(label, total=event.total or None, note="", left="")
            return
        status = self.file.status
        seconds = status.tasks[event.task].seconds_left(status.updated)
        left = "" if seconds is None else f"{duration(seconds)} left"
        self.progress.update(bar, completed=event.done, total=event.total or None, note=event.note, left=left)

    def _move_whole(self) -> Counter[str]:
        """Move the bar of the experiment by the tasks done and the shares of those that run.

        Returns:
            The number of tasks in each state.
        """
        self.bar_moved = time.monotonic()
        status = self.file.status
        found, estimate = status.counts(), eta(status)
        running = [bar for bar in self.progress.tasks if bar.id != self.whole]
        shares = sum(bar.completed / bar.total for bar in running if bar.total)
        left = "" if estimate is None else f"{_time_left(estimate)} left"
        note = "  ".join(f"{state} {found[state]}" for state in STATES if found[state])
        self.progress.update(self.whole, completed=found["done"] + shares, note=note, left=left)
        if self.progress.disable and self.bar_moved - self.line_printed > LINE_INTERVAL:
            self.line_printed = self.bar_moved
            tasks = "; ".join(f"{bar.description} {bar.percentage:.0f} %" for bar in running)
            words = ", ".join(word for word in (f"running {tasks}", left) if word)
            messages.print(f"{found['done']}/{self.total} {words}", soft_wrap=True, markup=False)
        return found


def show_failures(failures: Mapping[str, str]) -> None:
    """Print one line per failed task with the reason."""
    for name, reason in failures.items():
        messages.print(f"failed: {name}: {reason}", soft_wrap=True, markup=False)


def show_status(path: str, status: ExperimentStatus) -> None:
    """Print the number of tasks in each state, the tasks that run, those that failed, and the time left."""
    tasks = status.tasks
    rows = []
    for kind in dict.fromkeys(task.kind for task in tasks.values()):
        of_kind = counts(task for task in tasks.values() if task.kind == kind)
        rows.append([kind, *(of_kind[state] for state in STATES)])
    found = status.counts()
    left = found["waiting"] + found["running"]
    state = "at work" if status.at_work else "stopped" if left else "finished"
    table(
        f"{path}: {status.name}, {state}",
        ["tasks", *STATES],
        [*rows, ["all", *(found[state] for state in STATES)]],
    )
    for name, task in tasks.items():
        if task.state == "running":
            share = f" {task.done}/{task.total}" if task.total else ""
            console.print(f"running: {name}{share} {task.note}".rstrip(), soft_wrap=True, markup=False)
    for name, reason in status.failures().items():
        console.print(f"failed: {name}: {reason}", soft_wrap=True, markup=False)
    if left:
        estimate = eta(status)
        shown = "not known yet" if estimate is None else _time_left(estimate)
        console.print(f"time left: {shown}" if status.at_work else f"time left, once it is continued: {shown}")


def _time_left(estimate: Eta) -> str:
    """Write the time that an experiment still takes.

    >>> [_time_left(Eta(90, at_least)) for at_least in (False, True)]
    ['2 min', 'over 2 min']
    """
    return f"over {duration(estimate.seconds)}" if estimate.at_least else duration(estimate.seconds)
