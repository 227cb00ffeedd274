"""MTL-IBP (De Palma et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from steadynet.errors import UserError
from steadynet.objectives.base import Batch
from steadynet.objectives.certified import AttackingCertifiedObjective, by_setting
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class MTLIBP(AttackingCertifiedObjective):
    """The loss (1 − α) · CE(f(x'), y) at the point x' that PGD finds + α · CE of the worst case by interval bounds.

    α = 0 is Madry's method, and α = 1 is IBP. In both terms, batch norm uses the statistics of the clean images.
    """

    name = "mtl-ibp"
    summary = "a little of ibp beside madry"

    ibp_share: float = setting(0.01, "α, the share of the certified loss")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ibp_share <= 1:
            raise UserError(f"ibp_share = {self.ibp_share}: α lies between 0 and 1")

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return α of the four published settings, with SABR's L1 weights."""
        return {
            "ibp_share": by_setting(data, eps, (1e-2, 8e-2, 4e-3, 0.5)),
            "l1_weight": by_setting(data, eps, (1e-5, 1e-6, 1e-6, 0.0)),
        }

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the weighted cross-entropy under attack and of the worst case, and the penalties."""
        region = batch.region(self.clip)
        points = self.attacked(batch, region)
        found = self.propagate(batch, region) if self.ibp_share or self.balance else None
        terms = {"adversarial": (1 - self.ibp_share) * F.cross_entropy(batch.logits_at(points), batch.targets)}
        if self.ibp_share and found:
            terms["certified"] = self.ibp_share * self.worst_cross_entropy(batch, found)
        return terms | self.penalties(batch, found)
