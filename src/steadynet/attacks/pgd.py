"""Projected gradient descent inside a region, against any objective; training and falsifying share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.networks.input_gradient import fast_input_gradient

StepRule = Literal["sign", "gradient"]


def descend(
    objective: Callable[[Tensor], Tensor],
    region: InputRegion,
    start: Tensor,
    *,
    steps: int,
    step_size: float | Sequence[float],
    rule: StepRule = "sign",
    momentum: float = 0.0,
    shrink: bool = False,
    relu: Callable[[Tensor], Tensor] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Tensor:
    """Points of the region that make ``objective`` (one number a point, shape (batch,)) small.

    Each step is x ← clip(x − α·sign ∂objective/∂x), or the bare gradient with ``rule="gradient"``; ``step_size``, α, is
    one number or one a step. The network's parameters get no gradient. Each point must depend on its own row only, so
    networks run in evaluation mode here. ``momentum`` keeps a share of the earlier gradients; ``shrink`` lets the step
    fall to zero; ``relu`` takes the place of every ReLU that ``objective`` calls; ``stop`` is asked before each step.
    """
    points = start.detach()
    kept: Tensor | float = 0.0
    with fast_input_gradient(points.device, relu):
        for step in range(steps):
            if stop():
                break
            points.requires_grad_()
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(objective(points).sum(), points)
            if momentum:
                norm = gradient.abs().flatten(1).mean(1).clamp_min(1e-12)
                kept = gradient = gradient / norm.view(-1, *[1] * (gradient.dim() - 1)) + momentum * kept
            move = gradient.sign() if rule == "sign" else gradient
            size = step_size[step] if isinstance(step_size, Sequence) else step_size
            length = size * (1 - step / steps if shrink else 1)
            points = region.project(points.detach().sub(move, alpha=length))
    return points


def maximise_cross_entropy(
    network: nn.Module,
    labels: Tensor,
    region: InputRegion,
    start: Tensor,
    *,
    steps: int,
    step_size: float | Sequence[float],
) -> Tensor:
    """PGD: points of the region with a large cross-entropy."""
    return descend(
        lambda points: -F.cross_entropy(network(points), labels, reduction="none"),
        region,
        start,
        steps=steps,
        step_size=step_size,
    )


def misclassified(network: nn.Module, points: Tensor, labels: Tensor) -> Tensor:
    """Whether each point gets another label than its own; shape (batch,)."""
    with torch.no_grad():
        return network(points).argmax(1) != labels


def find_counterexamples(
    network: nn.Module, images: Tensor, labels: Tensor, region: InputRegion, *, steps: int, restarts: int = 1
) -> tuple[Tensor, Tensor]:
    """(found, points): where ``found``, the point lies in its region and the network gives it a wrong label.

    The image itself is tried first; then ``restarts`` runs of PGD from uniform starts with step 2.5·width/steps. Where
    nothing is found nothing is claimed: the point is the image.
    """
    with evaluation_mode(network):
        points, found = images.clone(), misclassified(network, images, labels) & region.contains(images)
        radius = float((region.upper - region.lower).max()) / 2
        for _ in range(restarts):
            rows = (~found).nonzero().flatten()
            if not len(rows) or not steps:
                break
            part = region[rows]
            tried = maximise_cross_entropy(
                network, labels[rows], part, part.sample(), steps=steps, step_size=2.5 * radius / steps
            )
            wrong = misclassified(network, tried, labels[rows])
            points[rows[wrong]], found[rows[wrong]] = tried[wrong], True
    return found, points
