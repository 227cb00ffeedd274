"""MTL-IBP (De Palma et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from steadynet.objectives.certified import by_setting
from steadynet.objectives.expressive import ExpressiveObjective


@dataclass(frozen=True, kw_only=True)
class MTLIBP(ExpressiveObjective):
    """The loss (1 − α) · CE(f(x'), y) at the point x' that PGD finds + α · CE of the worst case by interval bounds.

    α = 0 is Madry's method, and α = 1 is IBP.
    """

    name = "mtl-ibp"
    summary = "a little of ibp beside madry"

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return the four published settings."""
        return super().published(data, eps) | {
            "ibp_share": by_setting(data, eps, (1e-2, 8e-2, 4e-3, 0.5)),
            "l1_weight": by_setting(data, eps, (1e-5, 1e-6, 3e-6, 1e-7)),
        }

    def mixed(self, logits: Tensor | None, margins: Tensor | None, labels: Tensor) -> dict[str, Tensor]:
        """Compute both losses, each with its weight."""
        terms = {}
        if logits is not None:
            terms["adversarial"] = (1 - self.ibp_share) * F.cross_entropy(logits, labels)
        if margins is not None:
            terms["certified"] = self.ibp_share * F.cross_entropy(-margins, labels)
        return terms
