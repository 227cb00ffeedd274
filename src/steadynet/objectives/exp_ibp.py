"""Exp-IBP (De Palma et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.objectives.certified import by_setting
from steadynet.objectives.expressive import ExpressiveObjective

SMALLEST_LOSS = 1e-12  # a loss of 0 has no logarithm


@dataclass(frozen=True, kw_only=True)
class ExpIBP(ExpressiveObjective):
    """The product CE(f(x'), y)^(1 − α) · (CE of the worst case by interval bounds)^α, for each image.

    α = 0 is Madry's method, and α = 1 is IBP.
    """

    name = "exp-ibp"
    summary = "a product of powers of madry's loss and ibp's"

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return the two published settings, of CIFAR-10; for MNIST those of CC-IBP."""
        return super().published(data, eps) | {
            "ibp_share": by_setting(data, eps, (0.1, 0.3, 9.5e-2, 0.5)),
            "l1_weight": by_setting(data, eps, (2e-6, 3e-6, 4e-6, 0.0)),
        }

    def mixed(self, logits: Tensor | None, margins: Tensor | None, labels: Tensor) -> dict[str, Tensor]:
        """Compute the mean of the products."""
        logarithm = torch.zeros((), device=labels.device)
        if logits is not None:
            logarithm = logarithm + (1 - self.ibp_share) * _logarithm_of_loss(logits, labels)
        if margins is not None:
            logarithm = logarithm + self.ibp_share * _logarithm_of_loss(-margins, labels)
        return {"certified": logarithm.exp().mean()}


def _logarithm_of_loss(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores, labels, reduction="none").clamp_min(SMALLEST_LOSS).log()
