"""Small adversarial bounding regions (Müller et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from steadynet.errors import UserError
from steadynet.objectives.base import Batch
from steadynet.objectives.certified import AttackingCertifiedObjective, by_setting
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class SABR(AttackingCertifiedObjective):
    """The cross-entropy of the worst case in a small box of radius τ = λ · ε around the point that PGD finds.

    The attack stays within ε − τ of the image, so the small box lies inside the region. λ = 1 is IBP.
    """

    name = "sabr"
    summary = "ibp on a small box around the image PGD finds"

    box: float = setting(0.4, "λ, the radius of the small box as a share of ε")
    eps_factor: float = setting(1.0, "train for ε times this")
    shrink: float = setting(1.0, "multiply the box's radius by this after each ReLU")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.box <= 1:
            raise UserError(f"box = {self.box}: λ lies between 0 and 1")
        if self.eps_factor <= 0:
            raise UserError(f"eps_factor = {self.eps_factor}: a factor is larger than 0")
        if not 0 < self.shrink <= 1:
            raise UserError(f"shrink = {self.shrink}: this lies between 0 and 1")

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return the four published settings."""
        return {
            "box": by_setting(data, eps, (0.4, 0.6, 0.1, 0.7)),
            "l1_weight": by_setting(data, eps, (1e-5, 1e-6, 1e-6, 0.0)),
            "eps_factor": by_setting(data, eps, (1.0, 1.0, 1.5, 1.0)),
            "shrink": by_setting(data, eps, (1.0, 1.0, 0.8, 1.0)),
        }

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the cross-entropy of the worst case in the small box, and the penalties."""
        box = self.small_box(batch, self.eps_factor * batch.radius, self.box)
        found = self.propagate(batch, box, self.shrink)
        return {"certified": self.worst_cross_entropy(batch, found)} | self.penalties(batch, found)
