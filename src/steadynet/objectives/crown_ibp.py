"""CROWN-IBP (Zhang et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steadynet.bounds.margins import crown_margins, ibp_margins
from steadynet.errors import UserError
from steadynet.objectives.base import Batch
from steadynet.objectives.certified import Propagated
from steadynet.objectives.ibp import IBP
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class CrownIBP(IBP):
    """IBP with margins mixed of β · CROWN's and (1 − β) · those of interval bounds; β falls while ε rises.

    CROWN's margins come from one backward pass over the interval bounds of the ReLU inputs. They are the tighter ones
    at the beginning of a training. Interval bounds are the tighter ones at its end, on a network trained for them.
    """

    name = "crown-ibp"
    summary = "ibp whose margins start as CROWN's and end as the intervals'"

    crown_start: float = setting(1.0, "β, CROWN's share of the margins, at ε = 0")
    crown_end: float = setting(0.0, "β once ε has risen")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("crown_start", "crown_end"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} = {getattr(self, name)}: β lies between 0 and 1")

    def certified(self, batch: Batch, found: Propagated) -> Tensor:
        """Compute the cross-entropy of the worst case by the mixed margins."""
        share = self.crown_start + (self.crown_end - self.crown_start) * batch.share
        graph, targets = batch.graph, batch.targets
        margins = batch.images.new_zeros(())
        if share:
            margins = margins + share * crown_margins(graph, found.values, targets)
        if share < 1:
            margins = margins + (1 - share) * ibp_margins(graph, found.values, targets)
        return F.cross_entropy(-margins, targets)
