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
    """α·CE of the worst logits that intervals allow in the region + (1 − α)·CE(f(x'), y) at the x' that PGD finds.

    α = 0 is Madry, α = 1 is IBP. Both terms see batch norm by the statistics of the clean batch.
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
        """α of the paper's four settings; the L1 weight is SABR's."""
        return {
            "ibp_share": by_setting(data, eps, (1e-2, 8e-2, 4e-3, 0.5)),
            "l1_weight": by_setting(data, eps, (1e-5, 1e-6, 1e-6, 0.0)),
        }

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """The adversarial and the certified loss, weighted, and what penalties there are."""
        region = batch.region(self.clip)
        points = self.attacked(batch, region)
        found = self.propagate(batch, region) if self.ibp_share or self.balance else None
        terms = {"adversarial": (1 - self.ibp_share) * F.cross_entropy(batch.logits_at(points), batch.targets)}
        if self.ibp_share and found:
            terms["certified"] = self.ibp_share * self.worst_cross_entropy(batch, found)
        return terms | self.penalties(batch, found)
