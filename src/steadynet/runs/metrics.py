"""The metrics of one training epoch, as one line of ``metrics.jsonl`` holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from steadynet.files import record_from


@dataclass(frozen=True)
class EpochMetrics:
    """What was measured of one epoch.

    Attributes:
        epoch: The number of the epoch; the first is 1.
        method: The training method of its phase.
        radius: The radius at its end.
        lr: The learning rate of its last step.
        seconds: How long its batches took, by the clock on the wall.
        loss: The mean of each loss term over its batches.
        validation_accuracy: Accuracy on the validation images; None without validation images.
        stable_share_ibp: The mean share of ReLUs that interval bounds prove stable on validation images; None without
            such images, and for a network that interval bounds do not support.
        cpu_seconds: The time that processors spent on its batches, summed over the threads of the process (of rank 0,
            if there are several processes); None in runs of earlier versions.
    """

    epoch: int
    method: str
    radius: float
    lr: float
    seconds: float
    loss: Mapping[str, float]
    validation_accuracy: float | None = None
    stable_share_ibp: float | None = None
    cpu_seconds: float | None = None

    @property
    def total_loss(self) -> float | None:
        """The sum of the loss terms; None if there are none."""
        return sum(self.loss.values()) if self.loss else None

    def to_line(self) -> str:
        """Return the line of ``metrics.jsonl``, without its line end.

        >>> EpochMetrics(1, "natural", 0.1, 1e-3, 2.5, {"cross_entropy": 0.5}).to_line()
        '{"epoch": 1, "method": "natural", "radius": 0.1, "lr": 0.001, "seconds": 2.5, "loss": {"cross_entropy": 0.5}}'
        """
        content = asdict(self)
        if self.validation_accuracy is None:
            del content["validation_accuracy"], content["stable_share_ibp"]
        if self.cpu_seconds is None:
            del content["cpu_seconds"]
        return json.dumps(content)

    @classmethod
    def from_line(cls, line: str) -> EpochMetrics:
        """Read a line of ``metrics.jsonl``.

        Raises:
            ValueError: The line is damaged.
        """
        return record_from(cls, json.loads(line))
