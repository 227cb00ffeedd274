"""What the expressive losses share (De Palma et al., 2024): one number α leads from an attack to IBP."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from steadynet.attacks.region import InputRegion
from steadynet.attacks.schedule import StepSchedule
from steadynet.bounds.margins import ibp_margins
from steadynet.errors import UserError
from steadynet.objectives.base import Batch, Recipe
from steadynet.objectives.certified import AttackingCertifiedObjective, by_setting
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class ExpressiveObjective(AttackingCertifiedObjective):
    """Base class of losses between Madry's (α = 0) and that of IBP (α = 1).

    A subclass says how it mixes the scores at the point x' that PGD finds with the margins that interval bounds prove.
    In both, batch norm uses the statistics of the clean images. As published, the attack of search ``paper`` takes one
    step of ten times its radius, which leads to a corner of the region.
    """

    ibp_share: float = setting(0.01, "α, the share of the certified loss")
    eps_factor: float = setting(1.0, "train for ε times this")
    attack_factor: float = setting(1.0, "let the inner attack reach as far as the radius trained for times this")
    steps: int | None = setting(1, "number of steps of the inner attack (k), for search 'paper'")
    step_share: float = setting(10.0, "step of the inner attack as a multiple of its radius, for search 'paper'")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ibp_share <= 1:
            raise UserError(f"ibp_share = {self.ibp_share}: α lies between 0 and 1")
        for name in ("eps_factor", "attack_factor", "step_share"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} = {getattr(self, name)}: a factor is larger than 0")

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return the factors and steps of the four published settings."""
        return {
            "eps_factor": by_setting(data, eps, (2.0, 1.334, 1.0, 1.0)),
            "attack_factor": by_setting(data, eps, (1.0, 1.0, 2.1, 1.0)),
            "steps": by_setting(data, eps, (1, 1, 8, 1)),
            "step_share": by_setting(data, eps, (10.0, 10.0, 0.25, 10.0)),
        }

    @classmethod
    def recipe(cls, data: str, eps: float) -> Recipe:
        """Return the recipe of certified training with the authors' rate drops."""
        drops = by_setting(
            data, eps, ((50 / 70, 60 / 70), (50 / 70, 60 / 70), (120 / 160, 140 / 160), (180 / 260, 220 / 260))
        )
        return replace(super().recipe(data, eps), drops=drops)

    def paper_schedule(self, radius: float) -> StepSchedule:
        """Return the steps of search ``paper``: all of one length."""
        return StepSchedule.equal(
            self.steps or 0, self.step_share * radius if self.step_size is None else self.step_size
        )

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the mixed loss and the penalties."""
        radius = self.eps_factor * batch.radius
        logits = margins = found = None
        if self.ibp_share < 1:
            reach = self.attack_factor * radius
            around = InputRegion.around(batch.images, reach, clip=self.clip)
            logits = batch.logits_at(self.attacked(batch, around, reach))
        if self.ibp_share or self.balance:
            found = self.propagate(batch, InputRegion.around(batch.images, radius, clip=self.clip))
        if self.ibp_share and found:
            margins = ibp_margins(batch.graph, found.values, batch.targets)
        return self.mixed(logits, margins, batch.targets) | self.penalties(batch, found)

    @abstractmethod
    def mixed(self, logits: Tensor | None, margins: Tensor | None, labels: Tensor) -> dict[str, Tensor]:
        """Mix both losses.

        Args:
            logits: The scores at the points that PGD finds, (batch, classes); None if α = 1.
            margins: The smallest margins of the label that interval bounds allow, (batch, classes); None if α = 0.
            labels: The labels, (batch,).
        """
