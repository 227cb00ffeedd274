"""The L1 norm of a network's weights, as a loss term that can be added to any method."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steadynet.networks.grafting import weight_matrices
from steadynet.objectives.base import Batch, Objective


@dataclass(frozen=True, kw_only=True)
class L1Penalty(Objective):
    """The term w_l1 · |W|₁, which the training setting ``l1_weight`` adds to methods without an L1 term of their own.

    Args:
        weight: w_l1.

    >>> network = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
    >>> _ = network[0].weight.data.copy_(torch.tensor([[3.0, -4.0]]))
    >>> term = L1Penalty(weight=0.5).terms(Batch(network, torch.zeros(1, 2), None, radius=0.1))["l1"]
    >>> term.item()
    3.5
    """

    weight: float

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute w_l1 · |W|₁."""
        return {"l1": self.weight * l1_norm(batch.network)}


def l1_norm(network: nn.Module) -> Tensor:
    """Compute the sum of the absolute values of a network's weights, without its biases."""
    return torch.stack([weights.abs().sum() for weights in weight_matrices(network)]).sum()
