"""CC-IBP (De Palma et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from steadynet.objectives.certified import by_setting
from steadynet.objectives.expressive import ExpressiveObjective


@dataclass(frozen=True, kw_only=True)
class CCIBP(ExpressiveObjective):
    """The cross-entropy of (1 − α) · the margins at the point that PGD finds + α · those that interval bounds prove.

    α = 0 is Madry's method, and α = 1 is IBP.
    """

    name = "cc-ibp"
    summary = "madry on margins with a little of ibp's in them"

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return the four published settings."""
        return super().published(data, eps) | {
            "ibp_share": by_setting(data, eps, (0.1, 0.3, 1e-2, 0.5)),
            "l1_weight": by_setting(data, eps, (2e-6, 3e-6, 3e-6, 0.0)),
        }

    def mixed(self, logits: Tensor | None, margins: Tensor | None, labels: Tensor) -> dict[str, Tensor]:
        """Compute the cross-entropy of the mixed margins."""
        parts = []
        if logits is not None:
            parts.append((1 - self.ibp_share) * (logits.gather(1, labels[:, None]) - logits))
        if margins is not None:
            parts.append(self.ibp_share * margins)
        mixed = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return {"certified": F.cross_entropy(-mixed, labels)}
