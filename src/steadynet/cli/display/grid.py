"""What a person sees of an experiment: bars in a terminal, plain lines elsewhere, and its tables."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.progress import TaskID

from steadynet.cli.display.tables import heading, table
from steadynet.cli.display.terminal import console, messages, progress_bar
from steadynet.experiments.plan import Plan
from steadynet.experiments.runner import Watcher
from steadynet.experiments.status import Eta, ExperimentStatus, StatusFile, counts, eta
from steadynet.experiments.table import DELTA, MISSED, Summary, TableRow, summarised
from steadynet.experiments.tasks import Event

NAMES = {
    "test_acc_percent": "test accuracy %",
    "unsat_percent": "UNSAT %",
    "n_unsat": "#UNSAT",
    "stable_percent": "Stable %",
    "time_s": "Time (s)",
    "time_unsat_timeout_s": "Time_U+T (s)",
}
COUNT = "n_unsat"
MOVE_EVERY = 0.5  # seconds: a cluster sends hundreds of events in one, and a grid may have thousands of tasks
SAY_EVERY = 60.0  # seconds between lines on what runs, where nobody watches
ROOM_FOR_NAMES, ROOM_FOR_CELL = 24, 14  # characters
HIDDEN = ("n_sat", "n_timeout", "n_unknown", "n_error")


class GridDisplay(Watcher):
    """A bar of the grid and of each running task; where nobody watches, a line for each that ends, and one a minute."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.progress = progress_bar()
        self.bars: dict[str, TaskID] = {}
        self.moved, self.said = 0.0, time.monotonic()

    def __enter__(self) -> GridDisplay:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.__exit__(*error)

    def on_start(self, plan: Plan, status: StatusFile) -> None:
        """Say what is to do."""
        self.file, self.total, self.tasks = status, len(plan.tasks), plan.tasks
        console.print(f"{self.title}: {self.total} tasks, {len(plan.done)} of them done", soft_wrap=True)
        self.grid = self.progress.add_task("grid", total=self.total, completed=len(plan.done), note="", left="")

    def on_event(self, event: Event) -> None:
        """Move the bars, or print a line."""
        if event.state == "running":
            bar = self.bars.get(event.task)
            if bar is None:
                label = self.tasks[event.task].label or event.task
                self.bars[event.task] = self.progress.add_task(label, total=event.total or None, note="", left="")
            else:
                status = self.file.status
                seconds = status.tasks[event.task].seconds_left(status.updated)
                total, left = event.total or None, "" if seconds is None else f"{_duration(seconds)} left"
                self.progress.update(bar, completed=event.done, total=total, note=event.note, left=left)
            if time.monotonic() - self.moved > MOVE_EVERY:
                self._move_grid()
            return
        if event.task in self.bars:
            self.progress.remove_task(self.bars.pop(event.task))
        found = self._move_grid()
        if event.state != "done" or self.progress.disable:
            note = f": {event.note}" if event.note else ""
            messages.print(
                f"{found['done']}/{self.total} {event.task} {event.state}{note}", soft_wrap=True, markup=False
            )

    def _move_grid(self) -> Counter[str]:
        """The bar of the grid: tasks done, and the shares of those that run; how many are in each state."""
        self.moved = time.monotonic()
        status = self.file.status
        found, whole = status.counts(), eta(status)
        shares = sum(task.completed / task.total for task in self.progress.tasks if task.id != self.grid and task.total)
        left = "" if whole is None else f"{_in_words(whole)} left"
        self.progress.update(self.grid, completed=found["done"] + shares, note=_words(found), left=left)
        if self.progress.disable and self.moved - self.said > SAY_EVERY:
            self._say(found, left)
        return found

    def _say(self, found: Counter[str], left: str) -> None:
        self.said = self.moved
        bars = [bar for bar in self.progress.tasks if bar.id != self.grid]
        running = "; ".join(f"{bar.description} {bar.percentage:.0f} %" for bar in bars)
        words = ", ".join(word for word in (f"running {running}", left) if word)
        messages.print(f"{found['done']}/{self.total} {words}", soft_wrap=True, markup=False)


def _words(found: dict[str, int]) -> str:
    states = ("done", "running", "waiting", "failed", "blocked")
    return "  ".join(f"{state} {found[state]}" for state in states if found.get(state))


def show_table(title: str, rows: Sequence[TableRow]) -> None:
    """Tables a model: a line a metric and radius, a column a method, ours beside the paper's number."""
    if not rows:
        heading(f"{title}: nothing is done yet")
    shown = [row for row in rows if row.metric not in HIDDEN]
    if all(row.paper_value is None for row in rows if row.metric == COUNT):
        shown = [row for row in shown if row.metric != COUNT]
    for model in dict.fromkeys(row.model for row in rows):
        own = [row for row in shown if row.model == model]
        data = ", ".join(dict.fromkeys(row.dataset for row in own))
        for differences in (False, True):
            part = [row for row in own if row.metric.endswith(DELTA) == differences]
            if not differences or any(row.value is not None for row in part):  # else what to compare with is not there
                _show_part(f"{title}: {model} on {data}{_what(part, differences)}", part)
    for row in dict.fromkeys((row.model, row.label) for row in rows if row.note == MISSED):
        console.print(f"{row[0]} by {row[1]}: {MISSED}", soft_wrap=True)


def _what(rows: Sequence[TableRow], differences: bool) -> str:
    has_paper = any(row.paper_value is not None for row in rows)
    several = len({row.seed for row in rows}) > 1
    words = ["differences"] if differences else []
    words += ["ours (the paper's)"] if has_paper else []
    words += ["mean ± standard deviation over the seeds"] if several else []
    return "".join(f", {word}" for word in words)


def _show_part(title: str, rows: Sequence[TableRow]) -> None:
    """One table, or several where the screen is too narrow for all methods."""
    numbers, labels = summarised(rows), list(dict.fromkeys(row.label for row in rows))
    columns = max(1, (console.width - ROOM_FOR_NAMES) // ROOM_FOR_CELL)
    lines = list(dict.fromkeys((row.metric, row.eps, row.model) for row in sorted(rows, key=_order)))
    for start in range(0, len(labels), columns):
        part = labels[start : start + columns]
        cells = []
        for metric, eps, model in lines:
            found = [_cell(numbers.get((model, label, metric, eps)), metric) for label in part]
            cells.append([_radius(eps), _metric(metric), *found])
        table(title, ["ε", "", *part], cells)


def _radius(eps: float | None) -> str:
    """A radius as the paper writes it.

    >>> [_radius(eps) for eps in (None, 0.1, 2 / 255)]
    ['', '0.1', '2/255']
    """
    levels = 0.0 if eps is None else 255 * eps
    if eps is None or abs(levels - round(levels)) > 1e-6 or len(f"{eps:g}") < 5:
        return "" if eps is None else f"{eps:.4g}"
    return f"{round(levels)}/255"


def _order(row: TableRow) -> tuple[bool, float]:
    return row.metric.endswith(DELTA), row.eps or 0.0


def _metric(metric: str) -> str:
    plain = metric.removesuffix(DELTA)
    name = NAMES.get(plain) or plain.replace("pgd", "PGD-").replace("_percent", " %")
    return f"Δ {name}" if plain != metric else name


def _cell(summary: Summary | None, metric: str) -> str:
    if summary is None:
        return ""
    size = abs(summary.mean or 0.0)
    digits = 1 if size >= 1 else 2 if size >= 0.1 or not size else 3
    if metric.startswith(COUNT) and summary.spread is None:
        digits = 0
    ours = "–" if summary.mean is None else f"{summary.mean:.{digits}f}"
    spread = "" if summary.spread is None else f"±{summary.spread:.{digits}f}"
    paper = "" if summary.paper_value is None else f" ({summary.paper_value:g})"
    return f"{ours}{spread}{paper}"


def show_failures(found: dict[str, str]) -> None:
    """What failed, a line each."""
    for name, reason in found.items():
        messages.print(f"failed: {name}: {reason}", soft_wrap=True, markup=False)


def show_status(path: str, status: ExperimentStatus) -> None:
    """Counts, what runs, what failed, and how long it will take."""
    tasks = status.tasks
    kinds = list(dict.fromkeys(task.kind for task in tasks.values()))
    states = ("done", "running", "waiting", "failed", "blocked")
    lines = []
    for kind in kinds:
        found = counts(task for task in tasks.values() if task.kind == kind)
        lines.append([kind, *(found[state] for state in states)])
    found = status.counts()
    left = found["waiting"] + found["running"]
    state = "at work" if status.at_work else "stopped" if left else "finished"
    table(f"{path}: {status.name}, {state}", ["", *states], [*lines, ["all", *(found[state] for state in states)]])
    for name, task in tasks.items():
        if task.state == "running":
            share = f" {task.done}/{task.total}" if task.total else ""
            console.print(f"running: {name}{share} {task.note}".rstrip(), soft_wrap=True, markup=False)
    for name, reason in status.failures().items():
        console.print(f"failed: {name}: {reason}", soft_wrap=True, markup=False)
    if left:
        whole = eta(status)
        shown = "not known yet" if whole is None else _in_words(whole)
        console.print(f"time left: {shown}" if status.at_work else f"time left, once it goes on: {shown}")


def _in_words(whole: Eta) -> str:
    """The time that a grid takes.

    >>> [_in_words(Eta(90, at_least)) for at_least in (False, True)]
    ['2 min', 'over 2 min']
    """
    return f"over {_duration(whole.seconds)}" if whole.at_least else _duration(whole.seconds)


def _duration(seconds: float) -> str:
    """A time as people say it.

    >>> [_duration(seconds) for seconds in (8, 90, 7300)]
    ['8 s', '2 min', '2.0 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
