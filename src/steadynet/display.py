"""What a person sees in a terminal: progress and tables. In a file or a pipe, plain lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from steadynet.run_directory import RunDirectory
from steadynet.settings import Phase
from steadynet.training import Position

console = Console(highlight=False)
messages = Console(stderr=True, highlight=False)


def progress_bar(unit: str) -> Progress:
    """A bar on standard error that vanishes when done; nothing where standard error is not a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=messages,
        transient=True,
        disable=not messages.is_terminal,
    )


def percent(share: float | None) -> str:
    """A share as people write it.

    >>> percent(0.975), percent(None)
    ('97.5 %', '–')
    """
    return "–" if share is None else f"{100 * share:.1f} %"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str | None = None) -> None:
    """Print a table; the first column to the left, numbers to the right."""
    result = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for position, column in enumerate(columns):
        result.add_column(column, justify="left" if position == 0 else "right", overflow="fold")
    for row in rows:
        result.add_row(*map(str, row))
    console.print(result)


class TrainingDisplay:
    """The live view of a training: a bar an epoch, and one line an epoch that stays."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.epochs = self.batches = 0
        self.progress = progress_bar("batches")

    def __enter__(self) -> TrainingDisplay:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.__exit__(*error)

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Show the bar of all batches."""
        self.epochs, self.batches = epochs, batches
        done = position.epoch * batches + position.batch
        if done:
            console.print(f"{self.name}goes on in epoch {position.epoch + 1} of {epochs}, batch {position.batch + 1}")
        self.task = self.progress.add_task("training", total=epochs * batches, completed=done, note="")

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Move the bar and show the loss terms."""
        terms = "  ".join(f"{name} {value:.3f}" for name, value in position.means().items())
        self.progress.update(
            self.task,
            completed=position.epoch * self.batches + position.batch,
            description=f"{self.name}epoch {position.epoch + 1}/{self.epochs} {phase.method}",
            note=f"{terms}  ε {radius:.3g}",
        )

    def on_epoch(self, metrics: dict[str, Any]) -> None:
        """One line that stays."""
        terms = "  ".join(f"{name} {value:.3f}" for name, value in metrics["loss"].items())
        found = ""
        if "validation_accuracy" in metrics:
            found = (
                f"  validation {percent(metrics['validation_accuracy'])}"
                f"  stable (ibp) {percent(metrics['stable_share_ibp'])}"
            )
        line = f"{self.name}epoch {metrics['epoch']:>3}/{self.epochs}  {metrics['method']}  {terms}{found}"
        console.print(f"{line}  {metrics['seconds']:.0f} s", soft_wrap=True)


class WithTensorBoard:
    """An observer beside another one: the same figures as TensorBoard events."""

    def __init__(self, inner: TrainingDisplay, run: RunDirectory) -> None:
        from steadynet.errors import UserError

        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("--tensorboard needs an extra: pip install steadynet[tensorboard]") from error
        self.inner, self.writer = inner, SummaryWriter(str(run.events))

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Pass on."""
        self.inner.on_start(epochs, batches, position)

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Pass on."""
        self.inner.on_batch(position, phase, radius)

    def on_epoch(self, metrics: dict[str, Any]) -> None:
        """Write every number of the epoch."""
        numbers = {f"loss/{name}": value for name, value in metrics["loss"].items()}
        numbers |= {name: value for name, value in metrics.items() if isinstance(value, float)}
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, metrics["epoch"])
        self.writer.flush()
        self.inner.on_epoch(metrics)


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


def is_interactive() -> bool:
    """Whether a person is watching."""
    return sys.stderr.isatty()
