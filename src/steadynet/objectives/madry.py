"""Adversarial training (Madry et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from steadynet.objectives.adversarial import AttackingObjective
from steadynet.objectives.base import Batch


@dataclass(frozen=True, kw_only=True)
class Madry(AttackingObjective):
    """The largest cross-entropy in the region, max CE(f(x'), y), at the point x' that PGD finds."""

    name = "madry"
    summary = "cross-entropy at the image PGD finds"

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute CE(f(x'), y)."""
        return {"adversarial": self.adversarial_cross_entropy(batch)}
