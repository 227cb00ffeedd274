"""Adversarial training (Madry et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from steadynet.objectives.adversarial import AttackingObjective
from steadynet.objectives.base import Batch


@dataclass(frozen=True, kw_only=True)
class Madry(AttackingObjective):
    """max over the region of CE(f(x'), y), the maximum found by PGD from a uniform start."""

    name = "madry"
    summary = "cross-entropy at the image PGD finds"

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """The cross-entropy of the attacked images."""
        return {"adversarial": self.adversarial_cross_entropy(batch)}
