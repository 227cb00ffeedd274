"""Stable pruning (Xu et al., 2024, "Training for Verification")."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from steadynet.errors import UserError
from steadynet.objectives.shaping import BoundedLayer, ShapingObjective
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class StablePruning(ShapingObjective):
    """Sets the weights of neurons that are hardly ever active to zero.

    A neuron's score is the mean of its upper bounds over the batch. The neurons of a layer with a score of 0 or less
    go, and with them the lowest share of the others. Their biases stay.
    """

    name = "stable-pruning"
    summary = "set the weights of the least active neurons to zero, every few batches"
    strength = "pruning"

    pruning: float = setting(0.05, "the share of a layer's neurons that may be active that go each time")
    pruning_epochs: int = setting(10, "prune in so many epochs, from the first")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.pruning <= 1:
            raise UserError(f"pruning = {self.pruning}: a share lies between 0 and 1")

    @property
    def last_epoch(self) -> int:
        """The last epoch in which neurons are pruned."""
        return self.pruning_epochs

    def change(self, bounded: BoundedLayer) -> None:
        """Prune one layer."""
        score = bounded.upper.mean(0)
        alive = torch.where(score > 0, score, torch.inf)
        lowest = alive.argsort()[: int(self.pruning * int(alive.isfinite().sum()))]
        gone = score <= 0
        gone[lowest] = True
        bounded.layer.weight[gone] = 0.0
