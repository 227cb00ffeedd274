"""Neuron behaviour consistency, the regulariser this project is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.networks.preactivations import activations
from steadynet.objectives.adversarial import AttackingObjective
from steadynet.objectives.base import Batch
from steadynet.objectives.consistency import consistency, most_inconsistent_neighbour
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class NBC(AttackingObjective):
    """−β · min over the region of NBC(f, x, x') (Algorithm 2), to be added to any other loss.

    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> bool(NBC(eps=0.3, beta=1.0)(model, torch.rand(16, 4)) < 0)
    True
    """

    name = "nbc"
    summary = "reward for ReLU inputs that keep their direction at the neighbour that disturbs them most"
    is_regulariser = True
    strength = "beta"

    beta: float = setting(1.0, "β, the weight of the consistency term")
    gamma: Literal["one", "rank-power", "rank-size"] | tuple[float, ...] = setting(
        "rank-power", "γ, what divides each layer's cosine: 1, 2^rank, rank·size, or one number a layer"
    )
    step: Literal["sign", "gradient"] = setting("sign", "the step of the inner attack: its sign or the gradient")

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """The weighted negative consistency."""
        clean = batch.clean_in_evaluation
        with evaluation_mode(batch.network):
            neighbours = most_inconsistent_neighbour(
                batch.network,
                clean,
                batch.region(self.clip),
                self.gamma,
                steps=self.steps,
                step_size=self.step_length(batch.radius),
                rule=self.step,
            )
        moved = activations(batch.network, neighbours)
        return {"consistency": -self.beta * consistency(batch.clean, moved, self.gamma).mean()}
