"""Neuron behaviour consistency as a regulariser: the paper's Algorithm 2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.networks.preactivations import activations
from steadynet.objectives.adversarial import AttackingObjective
from steadynet.objectives.base import Batch
from steadynet.objectives.consistency import consistency, most_inconsistent_neighbour
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class NBC(AttackingObjective):
    """The NBC term of the paper's loss (Algorithm 2): −β · min NBC(f, x, x') over the neighbours x' of each image.

    Add it to any other loss of any PyTorch model with ReLUs: ``NBC(eps=0.3)(model, images)`` returns the term of one
    batch, a number with gradients. An attack searches the minimum: from a random
    start, it takes the steps that ``search`` chooses. Gradients flow through x and x'.

    Args:
        eps: The radius of the neighbourhood, in pixels of [0, 1].
        beta: β, the weight of the term.
        gamma: γ, which balances the layers: ``one``, ``rank-power``, ``rank-size``, or one number per ReLU layer.
        search: The steps of the attack: ``paper``, ``fast`` (three decaying steps, which are as strong), or a list of
            shares of the radius.
        steps: The number of steps k of the search ``paper``.
        step_size: The length α of its steps; ε/10 unless given.
        step: Whether a step follows the ``sign`` of the gradient or the ``gradient`` itself.
        clip: Whether the neighbours stay inside [0, 1]. Set it to False if your images are normalised.

    Raises:
        UserError: A setting does not fit; or, when it is called, the radius is missing, the model has no ReLU,
            ``gamma`` does not fit its layers, or images lie outside [0, 1] while ``clip`` is set.

    >>> import torch
    >>> import torch.nn.functional as F
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> images, labels = torch.rand(16, 4), torch.randint(0, 2, (16,))
    >>> loss = F.cross_entropy(model(images), labels) + NBC(eps=0.3, beta=1.0)(model, images)
    >>> loss.backward()
    """

    name = "nbc"
    summary = "reward for ReLU inputs that keep their direction at the neighbour that disturbs them most"
    is_regulariser = True
    strength = "beta"

    beta: float = setting(1.0, "β, the weight of the consistency term")
    gamma: Literal["one", "rank-power", "rank-size"] | tuple[float, ...] = setting(
        "rank-power",
        "γ, by which each layer's cosine is divided: one, rank-power (2^rank), rank-size, or a number per layer",
    )
    step: Literal["sign", "gradient"] = setting("sign", "whether the inner attack steps along the gradient or its sign")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta < math.inf:
            raise UserError(f"beta = {self.beta}: a weight is 0 or more")
        if not isinstance(self.gamma, str) and not all(0 < value < math.inf for value in self.gamma):
            raise UserError(f"gamma = {self.gamma}: each layer's cosine is divided by a number above 0")

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute −β · NBC(f, x, x'), the mean over the batch."""
        # Algorithm 2, lines 1 to 6: the neighbour x'. The attack sees the network in evaluation mode, where images of a
        # batch do not influence each other.
        clean = batch.clean_in_evaluation
        with evaluation_mode(batch.network):
            neighbours = most_inconsistent_neighbour(
                batch.network,
                clean,
                batch.region(self.clip),
                self.gamma,
                self.schedule(batch.radius),
                self.step,
            )
        # Line 7 without its cross-entropy, which the objective that this one joins brings: −β · NBC(f, x, x').
        moved = activations(batch.network, neighbours)
        return {"consistency": -self.beta * consistency(batch.clean, moved, self.gamma).mean()}
