"""Monotone networks: the smallest margin lies in a known corner of the box, so its value is known.

All weights but those of the first layer are positive, and each input of the first layer enters with one sign. The last
bias is chosen so that the margin in that corner is a little above zero, or a little below.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from steadynet.verification.self_test.architectures import ARCHITECTURES, build, input_shape
from steadynet.verification.self_test.known import ConstructionError, Family, KnownInstance, Truth
from steadynet.verification.self_test.random_numbers import integer, point, power_of_ten
from steadynet.verification.self_test.rounding_bound import rounding_bound
from steadynet.verification.self_test.torch_instance import KnownBox, network_instance

BOXES = 16  # properties of each network
CLEARLY = 8  # times the bound on rounding is clearly above it


def monotone(
    architecture: str,
    scaled: Callable[[int], Tensor] | None = None,
    prepare: Callable[[nn.Sequential], None] = lambda network: None,
) -> KnownInstance:
    """A monotone network of two classes, with boxes whose smallest margins lie on both sides of zero, some near it.

    Args:
        architecture: The architecture.
        scaled: If given, draws positive factors of the neurons of the first layer. The next layer divides by them.
        prepare: Changes the random network before its weights are made positive.
    """
    network = build(architecture, 2)
    prepare(network)
    _make_positive(network)
    if scaled is not None:
        _scale_and_back(network, scaled)
    signs = torch.ones(input_shape(architecture))
    first, last = network[0], network[-1]
    assert isinstance(last, nn.Linear)
    if isinstance(first, nn.Linear):
        signs = torch.where(torch.rand(signs.shape) < 0.5, -1.0, 1.0)
        first.weight.data.mul_(signs)
    radius = power_of_ten(-2, -0.5)
    boxes = [_box(point(signs.shape), radius) for _ in range(BOXES)]
    worst = torch.stack([torch.where(signs > 0, lower, upper) for lower, upper in boxes])
    with torch.no_grad():
        last.weight[1] = last.weight[0] * torch.rand(last.in_features)  # the margin's own weights are positive, too
        margins = _margins(network, worst)
        depth = power_of_ten(-5, -1) * float(margins.abs().max())
        # just above or below one of the minima, so that some boxes hold and others do not
        last.bias[0] -= float(margins[integer(0, BOXES - 1)]) + depth * (1 if integer(0, 1) else -1)
        margins = _margins(network, worst)
        largest = torch.stack([upper.abs().maximum(lower.abs()) for lower, upper in boxes])
        room = CLEARLY * rounding_bound(network, largest)
    clear = [index for index in range(BOXES) if abs(float(margins[index])) > room]
    if not clear:
        raise ConstructionError
    return network_instance(
        network,
        [
            KnownBox(*boxes[index], Truth.HOLDS if margins[index] > 0 else Truth.VIOLATED, worst[index])
            for index in clear
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


def _scale_and_back(network: nn.Sequential, scaled: Callable[[int], Tensor]) -> None:
    first, following = network[0], network[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(following, nn.Linear)
    factors = scaled(first.out_features)
    first.weight.data.mul_(factors[:, None])
    first.bias.data.mul_(factors)
    following.weight.data.div_(factors)


def _one_scale(neurons: int) -> Tensor:
    """One factor for a whole layer: a program that computes with tolerances may lose it, or the next layer."""
    return torch.full((neurons,), power_of_ten(-18, 18))


def _many_scales(neurons: int) -> Tensor:
    return torch.tensor([power_of_ten(-12, 12) for _ in range(neurons)])


FAMILY = Family(
    "monotone",
    {
        **{f"monotone, {name}": partial(monotone, name) for name in ARCHITECTURES},
        "monotone, a layer scaled by 1e±18": partial(monotone, "dense", _one_scale),
        "monotone, neurons scaled by 1e±12": partial(monotone, "dense", _many_scales),
    },
)
