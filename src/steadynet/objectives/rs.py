"""ReLU Stable (Xiao et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from steadynet.bounds import interval_bounds, substituted_bounds
from steadynet.errors import UserError
from steadynet.objectives.adversarial import AttackingObjective
from steadynet.objectives.base import Batch, Recipe
from steadynet.objectives.l1 import l1_norm
from steadynet.plugins import setting

PUBLISHED = "published"  # stands for the weight that the authors published for the data set and the radius


@dataclass(frozen=True, kw_only=True)
class ReLUStable(AttackingObjective):
    """The loss CE(f(x'), y) − w_rs · Σ_i mean Σ tanh(1 + l_i · u_i) + w_l1 · |W|₁.

    x' is the point that PGD finds, and l_i and u_i are interval bounds of the ReLU inputs of layer i. A ReLU is stable
    if l · u ≥ 0; the smooth tanh(1 + l · u) rewards that. As published, a layer of shape (channels, height, width) is
    summed over its channels and averaged over the batch and the positions.
    """

    name = "rs"
    summary = "madry plus a reward for ReLUs whose interval bounds do not cross zero"
    strength = "rs_weight"

    rs_weight: float | Literal["published"] = setting(
        1.2e-4,
        "w_rs, the weight of the stability term; published: that of its authors, 1e-4 to 1.2e-4 on MNIST, 1e-3 or 2e-3 "
        "on CIFAR-10, where C1 then learns little",
    )
    l1_weight: float = setting(2e-5, "w_l1, the weight of the L1 norm of the weights")
    improved: bool = setting(False, "tighter, slower intervals: substitute back through ReLUs that are always active")

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return w_rs as published: about 1e-4 on MNIST, ten to twenty times as much on CIFAR-10."""
        if data == "cifar10":
            return {"rs_weight": 1e-3 if eps < 5 / 255 else 2e-3}
        return {"rs_weight": 1e-4} if data == "mnist" and 0.15 <= eps < 0.25 else {}

    @classmethod
    def completed(cls, given: Mapping[str, Any], data: str, eps: float) -> dict[str, Any]:
        """Return the settings with w_rs as a number: on CIFAR-10, the published one only if the user asks for it.

        With the published weight, the gradient of the stability term outweighs that of the cross-entropy on an
        untrained C1: it is 70 times as large at 0.8/255 and 1.4 times at 8/255. On M1, it is at most 0.6 times.
        """
        completed = super().completed(given, data, eps)
        wanted = given.get("rs_weight", cls.rs_weight if data == "cifar10" else PUBLISHED)
        published = cls.published(data, eps).get("rs_weight", cls.rs_weight)
        return completed | {"rs_weight": published if wanted == PUBLISHED else wanted}

    @classmethod
    def recipe(cls, data: str, eps: float) -> Recipe:
        """Return how its authors train: ε rises over the first half of the training."""
        return Recipe(warmup_share=0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rs_weight == PUBLISHED:
            raise UserError("rs_weight = published depends on the data set and the radius: give the number instead")

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the cross-entropy under attack, the stability term and the L1 term."""
        bound = substituted_bounds if self.improved else interval_bounds
        bounds = bound(batch.network, batch.region(self.clip), check=False)  # at every step, so it must be fast
        # −Σ_i mean Σ tanh(1 + l·u): lowest where no interval [l, u] contains 0, which means that all ReLUs are stable.
        instability = sum(
            (-torch.tanh(1 + layer.lower * layer.upper).sum(1).mean() for layer in bounds.relus),
            start=torch.zeros((), device=batch.images.device),
        )
        return {
            "adversarial": self.adversarial_cross_entropy(batch),
            "instability": float(self.rs_weight) * instability,
            "l1": self.l1_weight * l1_norm(batch.network),
        }
