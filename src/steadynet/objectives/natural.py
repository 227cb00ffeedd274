"""Natural training: cross-entropy, no robustness asked for."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steadynet.objectives.base import Batch, Objective


@dataclass(frozen=True, kw_only=True)
class Natural(Objective):
    """CE(f(x), y)."""

    name = "natural"
    summary = "cross-entropy alone"

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """The cross-entropy of the clean images."""
        return {"cross_entropy": F.cross_entropy(batch.clean.logits, batch.targets)}
