"""Descent on the margins of a property, on its condensed network: steps are quicker there than on the whole network.

The condensed network computes the margins of the whole one up to rounding, so only a point that the whole network
gives another label is a counterexample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.condensed import CondensedNetwork
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.attack import DIVERSIFIED, DIVERSIFYING_STEP, DIVERSIFYING_STEPS, HOPE, PACE
from steadynet.verification.search.decisions import Decisions

NEARLY_REFUTED = 1e-3  # a margin that the condensed network computes, below which a point is replayed
MOMENTUM = 0.75


@dataclass(frozen=True)
class Functions:
    """What a descent is on: linear functions of the input and of the unstable ReLUs, one per column.

    Attributes:
        coefficients: (inputs + neurons, n).
        constants: (n,).
    """

    coefficients: Tensor
    constants: Tensor

    @classmethod
    def of(cls, network: CondensedNetwork, margin: Tensor) -> Functions:
        """Some margins of the network; ``margin`` is (n,)."""
        return cls(network.margins.index_select(1, margin), network.constants[margin])

    @classmethod
    def mixtures(cls, network: CondensedNetwork, count: int) -> Functions:
        """Random mixtures of all margins."""
        shares = 2 * torch.rand(len(network.constants), count, device=network.constants.device).to(network.margins) - 1
        return cls(network.margins @ shares, network.constants @ shares)


def values_and_gradients(network: CondensedNetwork, functions: Functions, points: Tensor) -> tuple[Tensor, Tensor]:
    """The functions at some points (inputs, n): their values, (n,), and their gradients, (inputs, n)."""
    inputs = network.inputs
    values = torch.empty(len(network.margins), points.shape[1], dtype=points.dtype, device=points.device)
    values[:inputs] = points
    slopes = torch.empty_like(values[inputs:])
    for layer in network.layers:
        rows = layer.rows
        z = torch.addmm(layer.constant[:, None], layer.matrix.matrix, values[: inputs + rows.start])
        slopes[rows] = torch.where(z > 0, 1.0, network.floor[rows])
        values[inputs + rows.start : inputs + rows.stop] = slopes[rows] * z
    pending = functions.coefficients.clone()
    found = (pending * values).sum(0) + functions.constants
    for layer in reversed(network.layers):
        rows = layer.rows
        through = pending[inputs + rows.start : inputs + rows.stop] * slopes[rows]
        pending[: inputs + rows.start].addmm_(layer.matrix.transposed, through)
    return found, pending[:inputs]


def descend(
    network: CondensedNetwork,
    functions: Functions,
    start: Tensor,
    steps: int,
    step_size: float = 1 / 8,
    enough: float = -torch.inf,
    out_of_time: Callable[[], bool] = lambda: False,
) -> tuple[Tensor, Tensor]:
    """Descend by shrinking steps along the sign of the gradient, and return the best point of each way.

    As steps shrink, a way gets slower and slower. So the last steps tell whether it can still come to ``enough``.

    Args:
        network: the condensed network.
        functions: what to descend on, one function per column.
        start: (inputs, n), the first points.
        steps: how many steps to take.
        step_size: the length of the first step, as a share of each input's width.
        enough: stop as soon as a value is below this, or none will be.
        out_of_time: stop as soon as this says yes.

    Returns:
        The points, (inputs, n), and their values, (n,).
    """
    low, high = network.box
    width, points = high - low, start
    best, least = start, torch.full_like(start[0], torch.inf)
    kept = torch.zeros_like(start)
    earlier = [least] * PACE  # the values so many steps ago, and since
    for step in range(steps + 1):
        found, gradient = values_and_gradients(network, functions, points)
        better = found < least
        best, least = torch.where(better, points, best), torch.where(better, found, least)
        reachable = least - HOPE * (steps - step) / PACE * (earlier[0] - least) <= enough
        earlier = [*earlier[1:], least]
        if step == steps or bool((least < enough).any()) or out_of_time():
            break
        if enough > -torch.inf and step >= PACE and not bool(reachable.any()):
            break
        gradient = gradient * width  # in shares of each input's width, as inputs may have widths of any size
        kept = gradient / gradient.abs().mean(0).clamp_min(1e-12) + MOMENTUM * kept
        moved = points - step_size * (1 - step / steps) * width * kept.sign()
        points = torch.minimum(torch.maximum(moved, low), high)
    return best, least


def attack(
    network: CondensedNetwork, decisions: Decisions, index: int, margin: Tensor, start: Tensor, steps: int
) -> bool:
    """Descend from some points, and refute the property where that leads to a counterexample.

    Args:
        network: the condensed network of the property.
        decisions: where a counterexample is noted.
        index: the property.
        margin: (n,), the margins to descend on.
        start: (inputs, n), the first points.
        steps: how many steps to take.

    Returns:
        Whether there is a counterexample.
    """
    functions, out_of_time = Functions.of(network, margin), decisions.out_of_time([index])
    points, reached = descend(network, functions, start, steps, enough=-NEARLY_REFUTED, out_of_time=out_of_time)
    shape = decisions.properties.images.shape[1:]
    for column in reached.argsort().tolist():
        if not reached[column] <= NEARLY_REFUTED:
            break
        if decisions.refute(index, points[:, column].reshape(shape), DecidedBy.ATTACK):
            return True
    return False


def attack_from_random_points(
    network: CondensedNetwork, decisions: Decisions, index: int, margins: Tensor, restarts: int, steps: int
) -> bool:
    """Attack some margins of a property from random points, diversified in every third restart.

    Returns:
        Whether there is a counterexample.
    """
    if not restarts or not len(margins):
        return False
    low, high = network.box
    start = low + (high - low) * torch.rand(len(low), restarts * len(margins), device=low.device).to(low)
    first = len(margins) * (restarts - (restarts // DIVERSIFIED if DIVERSIFIED else 0))
    if first < start.shape[1]:
        mixtures = Functions.mixtures(network, start.shape[1] - first)
        start[:, first:] = descend(network, mixtures, start[:, first:], DIVERSIFYING_STEPS, DIVERSIFYING_STEP)[0]
    return attack(network, decisions, index, margins.repeat(restarts), start, steps)
