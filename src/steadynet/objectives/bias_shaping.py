"""Bias shaping (Xu et al., 2024, "Training for Verification")."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from steadynet.errors import UserError
from steadynet.objectives.shaping import BoundedLayer, ShapingObjective
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class BiasShaping(ShapingObjective):
    """Moves the biases of unstable neurons, the cheapest first, until they are stable on the batch.

    l is the smallest lower bound of a neuron over the batch, u the largest upper bound. A neuron with l < 0 < u costs
    min(−l, u). The cheapest share of a layer gets −l added to its bias, or u taken off, whichever is less.
    """

    name = "bias-shaping"
    summary = "move the biases of nearly stable neurons, every few batches"
    strength = "shaping"

    shaping: float = setting(0.2, "the share of a layer's unstable neurons that become stable each time")
    shaping_epochs: int = setting(20, "shape biases in so many epochs, from the first")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.shaping <= 1:
            raise UserError(f"shaping = {self.shaping}: a share lies between 0 and 1")

    @property
    def last_epoch(self) -> int:
        """The last epoch in which biases are shaped."""
        return self.shaping_epochs

    def change(self, bounded: BoundedLayer) -> None:
        """Shape the biases of one layer."""
        bias = bounded.layer.bias
        if bias is None:
            return
        lower, upper = bounded.lower.amin(0), bounded.upper.amax(0)
        cost = torch.where((lower < 0) & (upper > 0), torch.minimum(-lower, upper), torch.inf)
        chosen = cost.argsort()[: int(self.shaping * int(cost.isfinite().sum()))]
        bias[chosen] += torch.where(-lower <= upper, -lower, -upper)[chosen]
