"""TRADES (Zhang et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.attacks.pgd import increase_divergence
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.objectives.adversarial import AttackingObjective
from steadynet.objectives.base import Batch
from steadynet.objectives.consistency import kl_divergence
from steadynet.plugins import setting

START_NOISE = 0.001  # standard deviation of the random start of the attack, as published


@dataclass(frozen=True, kw_only=True)
class Trades(AttackingObjective):
    """The loss CE(f(x), y) + β_T · max KL(p(x) ‖ p(x')) over the region, with p = softmax(f).

    An attack searches the point x' of the largest divergence. Gradients flow through x and x'.
    """

    name = "trades"
    summary = "cross-entropy plus the KL divergence to the image that changes the output most"
    strength = "trades_weight"

    trades_weight: float = setting(6.0, "β_T, the weight of the KL term; 1 on digits, MNIST and Fashion-MNIST")

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return β_T as published: 1 on grey images, 6 (the default) on CIFAR-10."""
        return {"trades_weight": 1.0} if data in ("digits", "mnist", "fashion-mnist") else {}

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the cross-entropy of the clean images, and the weighted divergence."""
        region, schedule = batch.region(self.clip), self.schedule(batch.radius)
        clean = F.softmax(batch.clean_in_evaluation.logits.detach(), 1)
        with evaluation_mode(batch.network):  # the attack: steps up KL(p(x) ‖ p(x')), from close to x
            points = increase_divergence(
                batch.network,
                lambda logits: clean,
                region,
                region.project(batch.images + START_NOISE * torch.randn_like(batch.images)),
                schedule,
            )
        divergence = kl_divergence(batch.clean.logits, batch.network(points)).mean()
        return {
            "cross_entropy": F.cross_entropy(batch.clean.logits, batch.targets),
            "divergence": self.trades_weight * divergence,
        }
