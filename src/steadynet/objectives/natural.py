"""Natural training: cross-entropy and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steadynet.objectives.base import Batch, Objective


@dataclass(frozen=True, kw_only=True)
class Natural(Objective):
    """The cross-entropy of the clean images, CE(f(x), y) (the paper's equation 2)."""

    name = "natural"
    summary = "cross-entropy alone"

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute CE(f(x), y)."""
        return {"cross_entropy": F.cross_entropy(batch.clean.logits, batch.targets)}
