"""What a person sees in a terminal: progress and tables. In a file or a pipe, plain lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from steadynet.plugins import describe_value
from steadynet.runs.directory import RunDirectory
from steadynet.training.observer import Observer, Position
from steadynet.training.settings import Phase, TrainingSettings
from steadynet.training.tensorboard import EventWriter
from steadynet.verification.run import RunVerification
from steadynet.verification.verdicts import Row

console = Console(highlight=False)
messages = Console(stderr=True, highlight=False)


def _screen() -> Console:
    """Where a person watches: where results go to a terminal, that one, so that a line never lands on the bar."""
    return console if console.is_terminal else messages


class _Bar(Progress):
    """Leaves room at its right for the ``^C`` that a terminal writes: on a new line it would keep the bar there."""

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        table = super().make_tasks_table(tasks)
        table.width = max(_screen().width - 3, 1)
        return table


class _TimeLeft(TimeRemainingColumn):
    """What a task says itself in its field ``left``, else by its speed so far."""

    def render(self, task: Task) -> Text:
        left = task.fields.get("left")
        return super().render(task) if left is None else Text(left, style="progress.remaining")


def progress_bar() -> Progress:
    """A bar of one line that vanishes when done; nothing where nobody watches."""
    screen = _screen()
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=8 if screen.width < 100 else 24, table_column=Column(no_wrap=True)),
        TaskProgressColumn(table_column=Column(no_wrap=True)),
        _TimeLeft(compact=True, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    ]
    return _Bar(
        *columns,
        console=screen,
        transient=True,
        expand=True,
        redirect_stdout=screen is console,
        disable=not screen.is_terminal,
    )


def percent(share: float | None) -> str:
    """A share as people write it.

    >>> percent(0.975), percent(None)
    ('97.5 %', '–')
    """
    return "–" if share is None else f"{100 * share:.1f} %"


def heading(text: str) -> None:
    """A line above a table, or instead of one."""
    console.print(f"\n{text}", style="bold", markup=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str | None = None) -> None:
    """Print a table; numbers to the right, words to the left."""
    heading(title)
    cells = [[str(cell) for cell in row] for row in rows]
    result = Table(caption=caption, caption_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        numbers = all(re.fullmatch(r"[-–+\d.,e %×/()]*(s|of \d+)?", row[position]) for row in cells)
        result.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        result.add_row(*row)
    console.print(result)


class TrainingDisplay:
    """The live view of a training: a bar, and one row an epoch that stays."""

    def __init__(self, settings: TrainingSettings | None = None) -> None:
        self.settings = settings
        self.epochs = self.batches = 0
        self.columns: list[str] = []
        self.progress = progress_bar()

    def __enter__(self) -> TrainingDisplay:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.__exit__(*error)

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Say what is trained, and show the bar of all batches."""
        self.epochs, self.batches, self.columns = epochs, batches, []
        for name, values in self._chosen().items():
            shown = [f"{key} {describe_value(value)}" for key, value in values.items() if value is not None]
            if shown:
                console.print(f"{name}: {', '.join(shown)}", soft_wrap=True)
        done = position.epoch * batches + position.batch
        if done:
            console.print(f"goes on in epoch {position.epoch + 1} of {epochs}, batch {position.batch + 1}")
        for task in self.progress.task_ids:
            self.progress.remove_task(task)
        self.task = self.progress.add_task("training", total=epochs * batches, completed=done, note="")

    def _chosen(self) -> dict[str, dict[str, Any]]:
        """The settings of each part of the method, and of the loop, where the method has a recipe for it."""
        if self.settings is None:
            return {}
        loop = {name: getattr(self.settings, name) for name in self.settings.chosen_by_recipe()}
        return {**self.settings.methods, "training": loop}

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Move the bar and show the loss terms."""
        terms = "  ".join(f"{name} {value:.2f}" for name, value in position.means().items())
        self.progress.update(
            self.task,
            completed=position.epoch * self.batches + position.batch,
            description=f"epoch {position.epoch + 1}/{self.epochs} {phase.method}",
            note=f"{terms}  ε {radius:.3g}",
        )

    def on_epoch(self, metrics: dict[str, Any]) -> None:
        """One row that stays, under a row of names where the phase is new."""
        cells = {"epoch": f"{metrics['epoch']}/{self.epochs}"}
        if "validation_accuracy" in metrics:
            cells["accuracy"] = percent(metrics["validation_accuracy"])
            cells["stable"] = percent(metrics["stable_share_ibp"])
        cells |= {name: f"{value:.3f}" for name, value in metrics["loss"].items()}
        cells["time"] = f"{metrics['seconds']:.0f} s"
        if list(cells) != self.columns:
            self.columns = list(cells)
            self._print_row({name: name for name in cells})
        self._print_row(cells)

    def follow(self, asked: RunVerification) -> Callable[[Row], None]:
        """A bar of the verification that comes after a training."""
        for task in self.progress.task_ids:
            self.progress.remove_task(task)
        return follow(self.progress, asked)

    def _print_row(self, cells: dict[str, str]) -> None:
        console.print(" ".join(f"{cell:>{max(7, len(name))}}" for name, cell in cells.items()), soft_wrap=True)


class WithEvents:
    """An observer beside another one: the same figures as TensorBoard events."""

    def __init__(self, inner: Observer, writer: EventWriter) -> None:
        self.inner, self.writer = inner, writer

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Open the events, at the epoch where the training goes on."""
        self.writer.open(position.epoch)
        self.inner.on_start(epochs, batches, position)

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Pass on."""
        self.inner.on_batch(position, phase, radius)

    def on_epoch(self, metrics: dict[str, Any]) -> None:
        """Write every number of the epoch."""
        self.writer.write(metrics)
        self.inner.on_epoch(metrics)


@contextmanager
def observing(run: RunDirectory, settings: TrainingSettings) -> Iterator[Observer]:
    """Whoever the settings want to watch a training."""
    with TrainingDisplay(settings) as display:
        if not settings.tensorboard:
            yield display
            return
        with EventWriter(run) as writer:
            yield WithEvents(display, writer)


def show_evaluation(name: str, result: dict[str, Any]) -> None:
    """Accuracy, attacked accuracy and stable share as a table."""
    table(
        f"{name}: test accuracy {percent(result['accuracy'])} of {result['images']} images",
        ["ε", f"PGD-{result['pgd_steps']} accuracy", "stable neurons (ibp)"],
        [
            [f"{row['eps']:.4g}", percent(row["pgd_accuracy"]), percent(row["stable_share_ibp"])]
            for row in result["radii"]
        ],
    )


def follow(progress: Progress, asked: RunVerification) -> Callable[[Row], None]:
    """A bar of the properties decided, with how many have each verdict; to be told of each row."""
    task = progress.add_task("verifying", total=len(asked), note="")
    return lambda row: progress.update(
        task, completed=len(asked.rows), description=f"verifying ε {row.eps:.4g}", note=asked.counts()
    )


def count_of(count: int, total: int) -> str:
    """A count with its denominator.

    >>> count_of(38, 100)
    '38/100 (38.0 %)'
    """
    return f"{count}/{total} ({percent(count / total)})" if total else "–"


def seconds(value: float | None) -> str:
    """A duration with the digits that matter.

    >>> [seconds(value) for value in (0.0123, 4.321, 61.04, None)]
    ['0.012 s', '4.32 s', '61.0 s', '–']
    """
    if value is None:
        return "–"
    return f"{value:.{3 if value < 1 else 2 if value < 10 else 1}f} s"


def verdict_rows(radii: Sequence[dict[str, Any]]) -> list[list[str]]:
    """What a verification found, as the rows of a table: a metric each, with a column a radius."""
    methods = "+".join(sorted({row["stable_method"] for row in radii if row["stable_method"]})) or "not measured"
    steps = radii[0]["pgd_steps"]
    rows = {
        "proved (UNSAT)": [count_of(row["unsat"], row["properties"]) for row in radii],
        "refuted (SAT)": [count_of(row["sat"], row["properties"]) for row in radii],
        "time-outs": [count_of(row["timeout"], row["properties"]) for row in radii],
        "unknown": [count_of(row["unknown"], row["properties"]) if row["unknown"] else "" for row in radii],
        "errors": [count_of(row["error"], row["properties"]) if row["error"] else "" for row in radii],
        f"stable neurons ({methods})": [_stable(row) for row in radii],
        "Time": [seconds(row["time"]) for row in radii],
        "Time_U+T": [seconds(row["time_unsat_timeout"]) for row in radii],
        f"PGD-{steps} accuracy": [count_of(row["pgd_kept"], row["properties"]) for row in radii],
    }
    return [[name, *cells] for name, cells in rows.items() if any(cells)]


def _stable(row: dict[str, Any]) -> str:
    """The share, with its denominator where it was not measured on all."""
    note = "" if row["stable_properties"] in (0, row["properties"]) else f" of {row['stable_properties']}"
    return percent(row["stable_share"]) + note


def show_verification(result: dict[str, Any]) -> None:
    """Verdicts, times and accuracy under attack as a table, and the first reason of what went wrong."""
    radii = result["radii"]
    table(
        f"{result['run']}: {radii[0]['properties']} properties a radius by {result['verifier']}, "
        f"time-out {result['timeout']:g} s",
        ["", *(f"ε {row['eps']:.4g}" for row in radii)],
        verdict_rows(radii),
    )
    for reason, count in result["reasons"].items():
        console.print(f"{count} × {reason}", soft_wrap=True, markup=False)
