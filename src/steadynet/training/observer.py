"""Observers, which follow a training, and the position they are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from steadynet.runs.metrics import EpochMetrics
from steadynet.runs.progress import ProgressBar
from steadynet.training.notation import Phase


@dataclass
class Position:
    """How far a training is.

    Attributes:
        epoch: How many epochs are finished.
        batch: How many batches of the current epoch are finished.
        lr: The learning rate of the last step.
        seconds: How long the batches of the current epoch took, by the clock on the wall.
        cpu_seconds: The time that processors spent on them, summed over the threads of this process.
        sums: The sum of each loss term over the batches of the current epoch.
    """

    epoch: int = 0
    batch: int = 0
    lr: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def means(self) -> dict[str, float]:
        """Return the mean of each loss term over the batches of the current epoch so far.

        >>> Position(batch=4, sums={"cross_entropy": 2.0}).means()
        {'cross_entropy': 0.5}
        """
        return {name: value / max(self.batch, 1) for name, value in self.sums.items()}


class Observer(Protocol):
    """Someone who follows a training: the progress bar of the command line, TensorBoard, a notebook."""

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Called before the first batch, with the number of epochs, of batches per epoch, and the position."""

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Called after each batch, with the radius it was trained for."""

    def on_epoch(self, metrics: EpochMetrics) -> None:
        """Called after each epoch, with what ``metrics.jsonl`` holds of it."""


class SilentObserver:
    """An observer that does nothing. Derive from it to override only what you need."""

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Do nothing."""

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Do nothing."""

    def on_epoch(self, metrics: EpochMetrics) -> None:
        """Do nothing."""


class ProgressObserver:
    """An observer that moves a progress bar and passes everything on to another observer."""

    def __init__(self, bar: ProgressBar, inner: Observer) -> None:
        self.bar, self.inner, self.epochs = bar, inner, 0

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Show the bar, which counts the batches of all epochs."""
        self.epochs = epochs
        self.bar.start(epochs * batches, position.epoch * batches + position.batch)
        self.inner.on_start(epochs, batches, position)

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Move the bar and show the loss terms beside it."""
        terms = "  ".join(f"{name} {value:.2f}" for name, value in position.means().items())
        self.bar.move(1, f"epoch {position.epoch + 1}/{self.epochs}  {terms}")
        self.inner.on_batch(position, phase, radius)

    def on_epoch(self, metrics: EpochMetrics) -> None:
        """Show the accuracy on the validation images, if it was measured."""
        if metrics.validation_accuracy is not None:
            self.bar.move(0, f"epoch {metrics.epoch}/{self.epochs}  accuracy {100 * metrics.validation_accuracy:.1f} %")
        self.inner.on_epoch(metrics)


@contextmanager
def following(observer: Observer | None, progress: bool | None) -> Iterator[Observer]:
    """Yield the observer of a training.

    Args:
        observer: The observer that the caller gave, if there is one.
        progress: Whether to show a progress bar, too. None shows one in notebooks, unless there is an observer.
    """
    wanted = False if progress is None and observer is not None else progress
    with ProgressBar("training", wanted) as bar:
        yield ProgressObserver(bar, observer or SilentObserver())
