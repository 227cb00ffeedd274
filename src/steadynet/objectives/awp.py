"""Adversarial weight perturbation (Wu et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from steadynet.errors import UserError
from steadynet.objectives.base import Batch, Moment, Objective
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class AWP(Objective):
    """A regulariser for flat minima: gradients are taken where the weights were moved against the loss.

    Each weight matrix w moves by γ · ‖w‖ · g/‖g‖ with the gradient g of the loss of the method that it joins. There
    the gradient of the step is taken; then the weights move back. It joins any method: ``madry+awp``. Each step costs
    the loss twice. γ = 0 is the method alone.
    """

    name = "awp"
    summary = "take gradients at weights that were moved against the loss"
    is_regulariser = True
    strength = "gamma_awp"

    gamma_awp: float = setting(0.01, "γ, how far weights move as a share of their norm (0.005 for trades)")
    awp_after: int = setting(0, "train so many epochs without it first (10 for trades)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma_awp < 0:
            raise UserError(f"gamma_awp = {self.gamma_awp}: this is 0 or more")
        if self.awp_after < 0:
            raise UserError(f"awp_after = {self.awp_after}: this is 0 or more")

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Return no term of its own."""
        return {}

    def perturbation(self, moment: Moment) -> float:
        """Return γ once the first epochs are over."""
        return self.gamma_awp if moment.epoch > self.awp_after else 0.0
