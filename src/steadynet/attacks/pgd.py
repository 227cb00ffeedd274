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
from steadynet.networks.layer_chain import LayerChain

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

    def gradient(points: Tensor) -> Tensor:
        points.requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(objective(points).sum(), points)[0]

    sizes = step_size if isinstance(step_size, Sequence) else [step_size] * steps
    lengths = [size * (1 - step / steps if shrink else 1) for step, size in enumerate(sizes[:steps])]
    with fast_input_gradient(start.device, relu):
        return follow(gradient, region, start, StepSchedule(tuple(lengths), momentum), rule, stop)


def follow(
    gradient_at: Callable[[Tensor], Tensor],
    region: InputRegion,
    start: Tensor,
    schedule: StepSchedule,
    rule: StepRule = "sign",
    stop: Callable[[], bool] = lambda: False,
) -> Tensor:
    """Take the steps of :func:`descend` along a gradient that is known.

    Args:
        gradient_at: A function from points (batch, *image) to the gradient of the objective there.
        region: Where the points must stay.
        start: The points to begin with, (batch, *image).
        schedule: The length of each step, and the momentum.
        rule: Whether a step follows the sign of the gradient or the gradient itself.
        stop: Called before each step; the descent ends when it returns True.

    Returns:
        The last points, (batch, *image).
    """
    points = start.detach()
    kept: Tensor | float = 0.0
    for length in schedule.lengths:
        if stop():
            break
        gradient = gradient_at(points)
        if schedule.momentum:
            norm = gradient.abs().flatten(1).mean(1).clamp_min(1e-12)
            kept = gradient = gradient / norm.view(-1, *[1] * (gradient.dim() - 1)) + schedule.momentum * kept
        move = gradient.sign() if rule == "sign" else gradient
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
    return increase_divergence(network, lambda logits: F.one_hot(labels, logits.shape[1]), region, start, schedule)


def increase_divergence(
    network: nn.Module,
    target: Callable[[Tensor], Tensor],
    region: InputRegion,
    start: Tensor,
    schedule: StepSchedule,
) -> Tensor:
    """Find points of the region whose probabilities q = softmax(f(x')) are far from given ones, p.

    It raises −Σ p log q: the cross-entropy if p is a label, and the divergence KL(p ‖ q) up to a constant.

    Args:
        network: The network, in evaluation mode.
        target: A function from logits, whose shape it may need, to p, (batch, classes).
        region: Where the points must stay.
        start: The points to begin with, (batch, *image).
        schedule: The lengths of the steps.

    Returns:
        The last points, (batch, *image).
    """
    chain = LayerChain.of(network, start)
    if chain is None:

        def log_likelihood(points: Tensor) -> Tensor:
            logits = network(points)
            return (target(logits) * F.log_softmax(logits, 1)).sum(1)

        lengths = schedule.lengths
        return descend(log_likelihood, region, start, steps=len(lengths), step_size=lengths, momentum=schedule.momentum)

    def gradient(points: Tensor) -> Tensor:
        passed = chain.forward(points)
        return chain.input_gradient(passed, target(passed.logits) - F.softmax(passed.logits, 1))

    return follow(gradient, region, start, schedule)


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
