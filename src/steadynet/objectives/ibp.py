"""Interval bound propagation (Gowal et al., 2018; Shi et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steadynet.errors import UserError
from steadynet.objectives.base import Batch
from steadynet.objectives.certified import CertifiedObjective, Propagated
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class IBP(CertifiedObjective):
    """The loss κ · CE(f(x), y) + (1 − κ) · CE of the worst case that interval bounds allow in the region.

    κ falls from ``kappa_start`` to ``kappa_end`` while ε rises.
    """

    name = "ibp"
    summary = "cross-entropy of the worst logits that interval bounds allow"

    kappa_start: float = setting(1.0, "κ, the weight of the clean cross-entropy, at ε = 0")
    kappa_end: float = setting(0.0, "κ once ε has risen")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kappa_start", "kappa_end"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} = {getattr(self, name)}: κ lies between 0 and 1")

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the weighted cross-entropy of the clean images and of the worst case, and the penalties."""
        kappa = self.kappa_start + (self.kappa_end - self.kappa_start) * batch.share
        targets, zero = batch.targets, batch.images.new_zeros(())
        found = self.propagate(batch, batch.region(self.clip)) if kappa < 1 or self.balance else None
        terms = {
            "cross_entropy": kappa * F.cross_entropy(batch.clean.logits, targets) if kappa else zero,
            "certified": (1 - kappa) * self.certified(batch, found) if kappa < 1 and found else zero,
        }
        if self.kappa_start == self.kappa_end == 0:
            del terms["cross_entropy"]
        return terms | self.penalties(batch, found)

    def certified(self, batch: Batch, found: Propagated) -> Tensor:
        """Compute the cross-entropy of the worst case."""
        return self.worst_cross_entropy(batch, found)
