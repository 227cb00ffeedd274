"""Who watches a training, and what there is to see: how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from steadynet.runs.metrics import EpochMetrics
from steadynet.training.notation import Phase


@dataclass
class Position:
    """How far a training is: whole epochs, and of the one under way its batches, rate and sums."""

    epoch: int = 0
    batch: int = 0
    lr: float = 0.0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def means(self) -> dict[str, float]:
        """The mean of each loss term over the epoch so far.

        >>> Position(batch=4, sums={"cross_entropy": 2.0}).means()
        {'cross_entropy': 0.5}
        """
        return {name: value / max(self.batch, 1) for name, value in self.sums.items()}


class Observer(Protocol):
    """Who watches a training: the command line's progress bar, TensorBoard, a notebook."""

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Before the first batch, once the run directory is there."""

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """After each batch."""

    def on_epoch(self, metrics: EpochMetrics) -> None:
        """After each epoch, with what ``metrics.jsonl`` holds of it."""


class SilentObserver:
    """Watches and says nothing."""

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Nothing."""

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Nothing."""

    def on_epoch(self, metrics: EpochMetrics) -> None:
        """Nothing."""
