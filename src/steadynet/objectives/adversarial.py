"""What all training methods with an inner attack share."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steadynet.attacks.pgd import maximise_cross_entropy
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.objectives.base import Batch, Objective
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class AttackingObjective(Objective):
    """Base class of objectives whose loss is computed at a point x' that an attack finds inside the region."""

    steps: int = setting(10, "steps of the inner attack (k)")
    step_size: float | None = setting(
        None, "step of the inner attack, α (default: ε/10, or ε/k for fewer than ten steps; ε/2 for sabr and mtl-ibp)"
    )
    clip: bool = setting(True, "keep the region inside [0, 1]")

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise UserError(f"steps = {self.steps}: an attack takes 0 or more steps")
        if self.step_size is not None and self.step_size <= 0:
            raise UserError(f"step_size = {self.step_size}: a step must be larger than 0")

    def step_length(self, radius: float) -> float:
        """Return the length α of a step.

        Unless the user gives one, it is a tenth of the radius. Fewer than ten steps are longer, so that they can reach
        the edge of the region.
        """
        return radius / min(10, max(self.steps, 1)) if self.step_size is None else self.step_size

    def adversarial_cross_entropy(self, batch: Batch) -> Tensor:
        """Compute CE(f(x'), y) at the x' that PGD finds from a uniform start."""
        region = batch.region(self.clip)
        with evaluation_mode(batch.network):
            points = maximise_cross_entropy(
                batch.network,
                batch.targets,
                region,
                region.sample(),
                steps=self.steps,
                step_size=self.step_length(batch.radius),
            )
        return F.cross_entropy(batch.network(points), batch.targets)
