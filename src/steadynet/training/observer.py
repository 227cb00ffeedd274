"""Observers, which follow a training, and the position they are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from steadynet.runs.metrics import EpochMetrics
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
