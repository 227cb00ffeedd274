"""Projected gradient descent (PGD) inside a region. Training and falsification both use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.attacks.schedule import StepSchedule
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
    """Find points of the region at which an objective is small, by projected gradient descent.

    Each step is x ← project(x − α · sign ∂objective/∂x). The parameters of the network get no gradient. The objective
    of a point must not depend on the other points, so the network must be in evaluation mode.

    Args:
        objective: A function from points (batch, *image) to one number per point, (batch,).
        region: Where the points must stay.
        start: The points to begin with, (batch, *image).
        steps: The number of steps.
        step_size: The step size α: one number, or one number per step.
        rule: Whether a step follows the sign of the gradient or the gradient itself.
        momentum: The share of the earlier gradients that is added to each new one; 0 for none.
        shrink: Whether the step size falls linearly to zero.
        relu: A function that replaces every ReLU that the objective calls.
        stop: Called before each step; the descent ends when it returns True.

    Returns:
        The last points, (batch, *image).

    >>> region = InputRegion.around(torch.tensor([[0.5, 0.5]]), 0.2)
    >>> descend(lambda points: points.sum(1), region, region.upper, steps=10, step_size=0.1)
    tensor([[0.3000, 0.3000]])
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
    schedule: StepSchedule,
) -> Tensor:
    """Find points of the region at which the cross-entropy is large (PGD, Madry et al., 2018).

    Args:
        network: The network, in evaluation mode.
        labels: The label of each image, (batch,).
        region: Where the points must stay.
        start: The points to begin with, (batch, *image).
        schedule: The lengths of the steps.

    Returns:
        The last points, (batch, *image).
    """
    return descend(
        lambda points: -F.cross_entropy(network(points), labels, reduction="none"),
        region,
        start,
        steps=len(schedule.lengths),
        step_size=schedule.lengths,
        momentum=schedule.momentum,
    )


def misclassified(network: nn.Module, points: Tensor, labels: Tensor) -> Tensor:
    """Tell whether the network gives each point another label than ``labels`` does; shape (batch,)."""
    with torch.no_grad():
        return network(points).argmax(1) != labels


def find_counterexamples(
    network: nn.Module, images: Tensor, labels: Tensor, region: InputRegion, *, steps: int, restarts: int = 1
) -> tuple[Tensor, Tensor]:
    """Look for points of the region that the network misclassifies.

    The image itself is tried first. Then PGD runs ``restarts`` times from random points, with step size
    2.5 · radius / steps.

    Args:
        network: The network.
        images: The images, (batch, *image).
        labels: Their labels, (batch,).
        region: The region around each image.
        steps: The steps of each run of PGD; with 0, only the images are tried.
        restarts: The number of runs.

    Returns:
        Two tensors: whether a counterexample was found for each image, (batch,), and the counterexamples,
        (batch, *image). Where none was found, which proves nothing, the point is the image itself.

    >>> network = nn.Linear(1, 2, bias=False)
    >>> _ = network.weight.data.copy_(torch.tensor([[1.0], [-1.0]]))  # label 0 for every positive number
    >>> images, labels = torch.tensor([[0.1], [0.9]]), torch.tensor([0, 0])
    >>> find_counterexamples(network, images, labels, InputRegion.around(images, 0.3, clip=False), steps=5)[0]
    tensor([ True, False])
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
                network, labels[rows], part, part.sample(), StepSchedule.equal(steps, 2.5 * radius / steps)
            )
            wrong = misclassified(network, tried, labels[rows])
            points[rows[wrong]], found[rows[wrong]] = tried[wrong], True
    return found, points
