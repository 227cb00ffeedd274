"""What all training methods with an inner attack share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

from steadynet.attacks.pgd import maximise_cross_entropy
from steadynet.attacks.schedule import StepSchedule
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.objectives.base import Batch, Objective
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class AttackingObjective(Objective):
    """Base class of objectives whose loss is computed at a point x' that an attack finds inside the region.

    ``search`` chooses the steps of the attack. ``steps`` and ``step_size`` belong to the search ``paper``.
    """

    search: Literal["paper", "fast"] | tuple[float, ...] = setting(
        "paper",
        "steps of the inner attack: paper (the method's own), fast (three decaying steps, as strong as the paper's "
        "ten), or a list of shares of the current ε, such as 1,0.5,0.25",
    )
    steps: int | None = setting(10, "number of steps of the inner attack (k), for search 'paper'")
    step_size: float | None = setting(
        None,
        "step of the inner attack, α, for search 'paper' "
        "(default: ε/10, or ε/k for fewer than ten steps; ε/2 for sabr and mtl-ibp)",
    )
    clip: bool = setting(True, "keep the region inside [0, 1]")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and self.steps < 0:
            raise UserError(f"steps = {self.steps}: an attack takes 0 or more steps")
        if self.step_size is not None and self.step_size <= 0:
            raise UserError(f"step_size = {self.step_size}: a step must be larger than 0")
        if self.search == "paper":
            if self.steps is None:
                object.__setattr__(self, "steps", type(self).steps)
            return
        self.schedule(1.0)  # raises an error if a step is not larger than 0
        for name in ("steps", "step_size"):
            value = getattr(self, name)
            if value not in (None, getattr(type(self), name)):
                raise UserError(f"{name} = {value} is for search 'paper': leave out {name}, or leave out search")
        # The search has its own number of steps. The default of ``steps`` would say something else in config.toml.
        object.__setattr__(self, "steps", None)

    @classmethod
    def completed(cls, given: Mapping[str, Any], data: str, eps: float) -> dict[str, Any]:
        """Return the settings with the published ones; the number of steps that authors published is for theirs."""
        completed = super().completed(given, data, eps)
        if given.get("search", "paper") != "paper" and "steps" not in given:
            completed.pop("steps", None)
        return completed

    def schedule(self, radius: float) -> StepSchedule:
        """Return the lengths of the attack's steps.

        Args:
            radius: The radius of the region now: while ε rises, the steps rise with it.
        """
        if self.search == "paper":
            return self.paper_schedule(radius)
        if self.search == "fast":
            return StepSchedule.fast(radius)
        return StepSchedule.in_shares(self.search, radius)

    def paper_schedule(self, radius: float) -> StepSchedule:
        """Return the steps of search ``paper``: k steps of a tenth of the radius, or of ``step_size``.

        Fewer than ten steps are longer, so that they can reach the edge of the region.
        """
        steps = self.steps or 0
        return StepSchedule.equal(steps, radius / min(10, max(steps, 1)) if self.step_size is None else self.step_size)

    def adversarial_cross_entropy(self, batch: Batch) -> Tensor:
        """Compute CE(f(x'), y) at the x' that PGD finds from a uniform start."""
        region = batch.region(self.clip)
        with evaluation_mode(batch.network):
            points = maximise_cross_entropy(
                batch.network,
                batch.targets,
                region,
                region.sample(),
                self.schedule(batch.radius),
            )
        return F.cross_entropy(batch.network(points), batch.targets)
