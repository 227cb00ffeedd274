"""IBP-R (De Palma et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.attacks.region import InputRegion
from steadynet.bounds.center_radius import Ball
from steadynet.errors import UserError
from steadynet.objectives.base import Batch
from steadynet.objectives.certified import AttackingCertifiedObjective, by_setting
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class IBPR(AttackingCertifiedObjective):
    """Cross-entropy under an attack that may reach farther than ε + λ · the area of the unstable ReLUs' relaxations.

    Over an interval [l, u] around zero, the triangle between a ReLU and its relaxation has the area ½ · u · (−l).
    Interval bounds over the region give l and u. The penalty is the mean over images of the sum over ReLUs.
    """

    name = "ibp-r"
    summary = "madry with a wider attack and small relaxations of unstable ReLUs"
    strength = "area_weight"

    area_weight: float = setting(1e-3, "λ, the weight of the relaxations' area")
    attack_factor: float = setting(1.0, "let the inner attack reach as far as ε times this")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.area_weight < 0:
            raise UserError(f"area_weight = {self.area_weight}: a weight is 0 or more")
        if self.attack_factor <= 0:
            raise UserError(f"attack_factor = {self.attack_factor}: a factor is larger than 0")

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return how far the attack reaches: far for a small radius, no farther than ε for a large one."""
        return {"attack_factor": by_setting(data, eps, (1.0, 1.0, 2.1, 1.0))}

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the cross-entropy under attack, the area and the penalties."""
        reach = self.attack_factor * batch.radius
        points = self.attacked(batch, InputRegion.around(batch.images, reach, clip=self.clip), reach)
        found = self.propagate(batch, batch.region(self.clip)) if self.area_weight or self.balance else None
        terms = {"adversarial": F.cross_entropy(batch.logits_at(points), batch.targets)}
        if self.area_weight and found:
            terms["area"] = self.area_weight * relaxation_area(found.relus)
        return terms | self.penalties(batch, found)


def relaxation_area(relus: list[Ball]) -> Tensor:
    """Compute the sum of ½ · max(u, 0) · max(−l, 0) over all ReLUs, as a mean over images.

    >>> relaxation_area([Ball(torch.tensor([[0.0, 3.0]]), torch.tensor([[2.0, 1.0]]))])  # [−2, 2] and [2, 4]
    tensor(2.)
    """
    areas = [F.relu(ball.centre + ball.radius) * F.relu(ball.radius - ball.centre) / 2 for ball in relus]
    return torch.stack([area.flatten(1).sum(1) for area in areas]).sum(0).mean()
