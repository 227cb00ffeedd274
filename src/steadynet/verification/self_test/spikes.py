"""Analytic spikes: the margin is constant but for one narrow place, where its minimum is known and negative.

An attack by gradients sees a constant almost everywhere, so a verifier has to search for the counterexample. A box
that does not meet the spike is a property that holds.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from steadynet.verification.self_test.architectures import linear
from steadynet.verification.self_test.exact import violated_in_some_order
from steadynet.verification.self_test.known import ConstructionError, Family, KnownInstance, Truth
from steadynet.verification.self_test.random_numbers import integer, pick, point, power_of_ten, uniform
from steadynet.verification.self_test.torch_instance import KnownBox, network_instance

BOXES = 3  # properties around each spike


def hat_layers(place: Tensor, width: float) -> tuple[nn.Linear, nn.ReLU, nn.Linear, nn.ReLU]:
    """Return layers that compute relu(1 − Σ|x − place| / width): 1 at the place, 0 farther away than the width."""
    size = len(place)
    distance = linear(torch.cat([torch.eye(size), -torch.eye(size)]), torch.cat([-place, place]))
    return distance, nn.ReLU(), linear(torch.full((1, 2 * size), -1 / width), torch.ones(1)), nn.ReLU()


def scores(depth: float, height: float) -> nn.Linear:
    """Return a last layer: class 0 wins by height − depth without a spike, and loses by ``depth`` at its top.

    The spike is shared between class 0 and class 1. A third class is far behind.
    """
    share, offset = uniform(0.0, 1.0), height * uniform(-1.0, 1.0)
    weight = torch.tensor([[-share * height], [(1 - share) * height], [0.0]])
    return linear(weight, torch.tensor([height - depth + offset, offset, offset - 5 * height]))


def rescaled(layers: Sequence[nn.Module], factor: float) -> nn.Sequential:
    """Return the network with its first layer times a factor, and the next one divided by it."""
    first, second = (layer for layer in layers[:3] if isinstance(layer, nn.Linear))
    first.weight.data.mul_(factor)
    first.bias.data.mul_(factor)
    second.weight.data.div_(factor)
    return nn.Sequential(*layers)


def boxes_around(place: Tensor, reach: float, truth: Truth = Truth.VIOLATED) -> list[KnownBox]:
    """Return boxes that contain the top of a spike, and one that does not meet it.

    Args:
        place: The top, in float32.
        reach: How far the spike extends from its top in every coordinate.
        truth: The truth of the boxes that contain the top.
    """
    boxes = []
    for _ in range(BOXES):
        radius = power_of_ten(-2, -0.5)
        center = place + radius * uniform(0.2, 0.95) * (2 * torch.rand(len(place)) - 1)
        boxes.append(KnownBox(center - radius, center + radius, truth, place))
    side = integer(0, len(place) - 1)
    lower, upper = place - 0.2, place + 0.2
    lower[side] = place[side] + reach * 1.01 + 1e-5
    upper[side] = lower[side] + 0.3
    return [*boxes, KnownBox(lower, upper, Truth.HOLDS)]


def hat() -> KnownInstance:
    """A pyramid in one to four dimensions, down to a minimum between −0.1 and −1e-5."""
    place, width = point((integer(1, 4),)), power_of_ten(-4, -1)
    network = nn.Sequential(*hat_layers(place, width), scores(power_of_ten(-5, -1), 1.0))
    return network_instance(network, boxes_around(place, width))


def scaled_hat() -> KnownInstance:
    """A pyramid whose layers are scaled up and down again, and whose scores are large or small."""
    place, width, height = point((integer(1, 4),)), power_of_ten(-3, -1), power_of_ten(-6, 6)
    layers = [*hat_layers(place, width), scores(height * power_of_ten(-5, -1), height)]
    return network_instance(rescaled(layers, power_of_ten(-6, 6)), boxes_around(place, width))


def wedge() -> KnownInstance:
    """A narrow valley across the box, in two to eight dimensions, which lies askew."""
    size, width, depth = integer(2, 8), power_of_ten(-4, -1), power_of_ten(-4, -1)
    place, direction = point((size,)), torch.randn(1, size)
    level = (direction.double() @ place.double()).float()
    distance = linear(torch.cat([direction, -direction]), torch.cat([-level, level]))
    valley = linear(torch.full((1, 2), -1 / width), torch.ones(1))
    network = nn.Sequential(distance, nn.ReLU(), valley, nn.ReLU(), scores(depth, 1.0))
    boxes = boxes_around(place, 0.0)[:BOXES]
    side = integer(0, size - 1)  # move aside along one coordinate until the valley is left behind
    away = torch.zeros(size)
    away[side] = 0.1
    radius = 0.04 * float(direction[0, side].abs() / direction.abs().sum())
    if float(direction[0, side].abs()) * 0.05 <= width:
        raise ConstructionError
    return network_instance(network, [*boxes, KnownBox(place + away - radius, place + away + radius, Truth.HOLDS)])


def several_hats() -> KnownInstance:
    """Many pyramids side by side, most of which do not reach down to zero."""
    size, count, width = integer(2, 3), integer(3, 6), 0.02
    corner = torch.rand(size) * 0.2 + 0.2
    places = [corner + 0.07 * index * torch.ones(size) for index in range(count)]
    parts = [hat_layers(place, width * uniform(0.3, 1.0)) for place in places]
    distances = [part[0] for part in parts]
    weight = torch.cat([layer.weight for layer in distances])
    bias = torch.cat([layer.bias for layer in distances])
    tops = linear(torch.block_diag(*(part[2].weight for part in parts)), torch.ones(count))
    heights = 1 - torch.rand(count) * 0.5 - 0.01
    deepest = integer(0, count - 1)
    depth = power_of_ten(-5, -1)
    heights[deepest] = 1 + depth
    last = linear(torch.stack([-heights, torch.zeros(count)]), torch.tensor([1.0, 0.0]))
    network = nn.Sequential(linear(weight, bias), nn.ReLU(), tops, nn.ReLU(), last)
    whole = KnownBox(corner - 0.1, corner + 0.07 * count, Truth.VIOLATED, places[deepest])
    others = [
        KnownBox(place - 0.01, place + 0.01, Truth.VIOLATED if index == deepest else Truth.HOLDS, place)
        for index, place in enumerate(places)
    ]
    return network_instance(network, [whole, *others])


class BesideScores(nn.Module):
    """The scores of a random network, plus a spike for class 1."""

    def __init__(self, random: nn.Module, spike: nn.Module) -> None:
        super().__init__()
        self.random, self.spike = random, spike

    def forward(self, inputs: Tensor) -> Tensor:
        """Add the two."""
        return self.random(inputs) + self.spike(inputs)


def in_a_random_network() -> KnownInstance:
    """A pyramid beside a small random network, whose scores at the top are known by running it in float64."""
    size, width, depth = integer(2, 4), power_of_ten(-3, -1), power_of_ten(-4, -1)
    place = point((size,))
    last = linear(torch.randn(3, 6) * 0.05, torch.tensor([1.5, 0.0, 0.0]))
    random = nn.Sequential(nn.Linear(size, 6), nn.ReLU(), last)
    with torch.no_grad():
        at_top = copy.deepcopy(random).double()(place.double())
    height = float(at_top[0] - at_top[1]) + depth
    spike = nn.Sequential(*hat_layers(place, width), linear(torch.tensor([[0.0], [height], [0.0]])))
    return network_instance(BesideScores(random, spike), boxes_around(place, width)[:BOXES])


def between_numbers() -> KnownInstance:
    """A spike between two neighbouring float32 numbers: only inputs that are no float32 numbers violate the property.

    The network subtracts the lower neighbour exactly. So the spike's top, half a unit above it, is exact as well.
    """
    size = integer(1, 2)
    place = point((size,))
    gap = float(torch.nextafter(place[:1], torch.ones(1)).double() - place[:1].double())
    if not math.log2(gap).is_integer():
        raise ConstructionError
    first = linear(torch.eye(size)[:1], -place[:1])  # x₀ − place, which is exact
    tent = linear(torch.ones(3, 1), torch.tensor([0.0, -gap / 2, -gap]))
    top = linear(torch.tensor([[2 / gap, -4 / gap, 2 / gap]]))  # 1 in the middle between the two numbers, 0 at both
    depth = power_of_ten(-3, -0.5)
    network = nn.Sequential(first, nn.ReLU(), tent, nn.ReLU(), top, scores(depth, 1.0))
    radius = pick([gap, 4 * gap, 1e-3, 0.1])
    return network_instance(network, [KnownBox(place - radius, place + radius, Truth.VIOLATED_EXACTLY)])


def overflow_at_the_top() -> KnownInstance:
    """A pyramid that is scaled up until float32 overflows, and down again: it is 1 high, or infinitely high in float32.

    Class 0 has 2 in exact arithmetic, and minus infinity at the top in float32.
    """
    place, width, factors = point((integer(1, 4),)), power_of_ten(-3, -1), [power_of_ten(20, 25), power_of_ten(20, 25)]
    layers: list[nn.Module] = [*hat_layers(place, width)]
    for factor in [*factors, *(1 / factor for factor in factors)]:
        layers += [linear(torch.tensor([[factor]])), nn.ReLU()]
    network = nn.Sequential(*layers, linear(torch.tensor([[-1e-30], [1.0]]), torch.tensor([2.0, 0.0])))
    if not violated_in_some_order(network, place):
        raise ConstructionError
    return network_instance(network, boxes_around(place, width, Truth.VIOLATED_BY_ROUNDING))


FAMILY = Family(
    "spikes",
    {
        "hat": hat,
        "scaled hat": scaled_hat,
        "wedge": wedge,
        "several hats": several_hats,
        "hat in a random network": in_a_random_network,
        "spike between float32 numbers": between_numbers,
        "overflow at the top of a hat": overflow_at_the_top,
    },
)
