"""Monotone networks: the smallest margin lies in a known corner of the box, so its value is known.

All weights but those of the first layer are positive, and each input of the first layer enters with one sign. The last
bias is chosen so that the margin in that corner is a little above zero, or a little below.
"""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import Tensor, nn

from steadynet.graph.rounding import gamma
from steadynet.verification.self_test.architectures import ARCHITECTURES, build, input_shape
from steadynet.verification.self_test.known import ConstructionError, Family, KnownInstance, Truth
from steadynet.verification.self_test.random_numbers import integer, point, power_of_ten
from steadynet.verification.self_test.torch_instance import KnownBox, network_instance

CLEARLY = 8  # times the bound on rounding is clearly above it


def monotone(architecture: str) -> KnownInstance:
    """A monotone network of two classes, with one box where class 0 wins by little and one where it loses by little."""
    network = build(architecture, 2)
    _make_positive(network)
    if architecture == "dense":
        signs = torch.where(torch.rand(input_shape("dense")) < 0.5, -1.0, 1.0)
        first = network[0]
        assert isinstance(first, nn.Linear)
        first.weight.data.mul_(signs)
    else:
        signs = torch.ones(input_shape(architecture))
    radius = power_of_ten(-2, -0.5)
    boxes = [_box(point(signs.shape), radius) for _ in range(4)]
    worst = torch.stack([torch.where(signs > 0, lower, upper) for lower, upper in boxes])
    last = network[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight[1] = last.weight[0] * torch.rand(last.in_features)  # the margin's own weights are positive, too
        margins = _margins(network, worst)
        order = margins.argsort()
        depth = power_of_ten(-5, -1) * float(margins.abs().max())
        # between the second and the third smallest minimum, or just above or below one of them
        chosen = float(margins[order[integer(0, 3)]]) + depth * (1 if integer(0, 1) else -1)
        last.bias[0] -= chosen
        margins = _margins(network, worst)
        room = CLEARLY * rounding_bound(network, torch.stack([upper.abs().maximum(lower.abs()) for lower, upper in boxes]))
    if bool((margins.abs() <= room).any()):
        raise ConstructionError
    return network_instance(
        network,
        [
            KnownBox(lower, upper, Truth.HOLDS if margin > 0 else Truth.VIOLATED, corner)
            for (lower, upper), margin, corner in zip(boxes, margins.tolist(), worst, strict=True)
        ],
    )


def _box(image: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    return image - radius, image + radius


def _margins(network: nn.Module, points: Tensor) -> Tensor:
    """Return the margin of class 0 at some points, in float64."""
    scores = copy.deepcopy(network).double()(points.double())
    return scores[:, 0] - scores[:, 1]


def _make_positive(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.weight.data.abs_()


def rounding_bound(network: nn.Module, largest: Tensor) -> float:
    """Return a bound on the rounding errors of a network's margins in float32, with sums in any order.

    Each number is at most what the network computes with the absolute values of all weights, biases and inputs. Each of
    its roundings has a relative error of at most u, so n roundings in a row, summed in any order, give γ_n of that.

    Args:
        network: A network whose layers grow with their inputs when all weights are positive.
        largest: The largest absolute value of each input, (points, *shape).
    """
    size = copy.deepcopy(network).double()
    terms = 0
    for module in size.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            terms += module.weight[0].numel() + 2
        elif isinstance(module, nn.BatchNorm2d):
            terms += 6
            assert module.running_mean is not None
            module.running_mean.data.copy_(-module.running_mean.abs())
        elif isinstance(module, nn.AvgPool2d):
            terms += 8
        else:
            terms += 1
        for parameter in module.parameters(recurse=False):
            parameter.data.abs_()
    with torch.no_grad():
        return gamma(terms, torch.float32) * 2 * float(size(largest.double()).max())


FAMILY = Family(
    "known minimum", {f"monotone, {name}": partial(monotone, name) for name in ARCHITECTURES}, short=2, long=60
)
