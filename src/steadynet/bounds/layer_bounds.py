"""Bounds of the ReLU inputs and of the output, and which ReLUs they show to be stable."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.graph.operations import Interval


@dataclass(frozen=True)
class LayerBounds:
    """What a bound method gives: one interval a ReLU layer (its inputs), and one for the output.

    ``method`` names who computed them: a stable share without it means nothing.
    """

    method: str
    relus: list[Interval]
    output: Interval

    def stable(self) -> list[Tensor]:
        """Which ReLUs cannot change sign, a layer: lower ≥ 0 or upper ≤ 0."""
        return [(layer.lower >= 0) | (layer.upper <= 0) for layer in self.relus]

    def stable_share(self) -> Tensor:
        """The share of stable ReLUs an image, all layers together; shape (batch,)."""
        return torch.cat([layer.flatten(1) for layer in self.stable()], 1).float().mean(1)
