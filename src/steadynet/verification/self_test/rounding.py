"""Rounding traps: float32 and exact arithmetic disagree about the sign of the smallest margin, or almost do.

A proof has to hold in both. The truth comes from exact rational arithmetic and from float32 sums in several orders, on
networks with one input: there the smallest margin is found without rounding.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import partial

import torch
from torch import nn

from steadynet.graph.rounding import gamma
from steadynet.verification.self_test.architectures import linear
from steadynet.verification.self_test.exact import (
    ORDERS,
    exact_margin,
    exact_minimum,
    exact_product,
    float32_scores,
    violated_in_some_order,
)
from steadynet.verification.self_test.known import ConstructionError, Family, KnownInstance, Truth
from steadynet.verification.self_test.random_numbers import integer, pick, power_of_ten, uniform
from steadynet.verification.self_test.torch_instance import KnownBox, network_instance, refutes

TRIES = 60  # points at which a violation by rounding is looked for
COPIES = 64
LONG_SUM = 16_512  # terms
CLEAR = 1e-3  # share of the scores' size that is clearly above all rounding of a tiny network


def interval() -> tuple[float, float]:
    """Draw an interval between 0 and 1 whose ends are float32 numbers."""
    ends = sorted(torch.tensor([uniform(0.05, 0.5), uniform(0.5, 0.95)]).tolist())
    return ends[0], ends[1]


def judged(network: nn.Sequential, lower: float, upper: float) -> KnownBox:
    """Return the property of an interval with its truth, which is found without rounding.

    Raises:
        ConstructionError: The property holds in exact arithmetic, but float32 may not be able to tell.
    """
    place, least = exact_minimum(network, lower, upper)
    ends = torch.tensor([[lower], [upper]])
    near = torch.tensor([float(place)]).clamp(lower, upper)
    around = [torch.nextafter(near, ends[side]) for side in (0, 1)]
    tried = [near, *around, *ends, *(ends[0] + (ends[1] - ends[0]) * torch.rand(TRIES, 1))]
    if least <= 0:
        witness = next((point for point in tried if refutes(network, point)), None)
        truth = Truth.VIOLATED_EXACTLY if witness is None else Truth.VIOLATED
        return KnownBox(ends[0], ends[1], truth, witness, exact=True)
    if any(refutes(network, point) or violated_in_some_order(network, point) for point in tried):
        return KnownBox(ends[0], ends[1], Truth.VIOLATED_BY_ROUNDING)
    if float(least) < CLEAR * _size(network, upper):
        raise ConstructionError
    return KnownBox(ends[0], ends[1], Truth.HOLDS)


def _size(network: nn.Sequential, largest: float) -> float:
    """Return the largest score that the network could have if nothing cancelled."""
    values = torch.tensor([largest], dtype=torch.float64)
    for layer in network:
        if isinstance(layer, nn.Linear):
            bias = 0.0 if layer.bias is None else layer.bias.detach().double().abs()
            values = layer.weight.detach().double().abs() @ values + bias
    return float(values.max())


def _last(network: nn.Sequential) -> nn.Linear:
    last = network[-1]
    assert isinstance(last, nn.Linear)
    return last


def shifted_into_the_gap(network: nn.Sequential, lower: float, upper: float) -> KnownInstance:
    """Move the score of class 0 so that zero lies near the smallest margin: above it, below it, or in between.

    In between means that the margin is positive in exact arithmetic and negative in float32.
    """
    place, least = exact_minimum(network, lower, upper)
    near = torch.tensor([float(place)]).clamp(lower, upper)
    computed = [float32_scores(network, near, order) for order in ORDERS]
    gap = float(exact_margin(network, near.tolist())) - min(float(scores[0] - scores[1]) for scores in computed)
    size = _size(network, upper)
    aim = pick([gap * uniform(0.1, 0.9), -size * power_of_ten(-9, -2), size * power_of_ten(-2.5, -1)])
    _last(network).bias.data[0] += aim - float(least)
    return network_instance(network, [judged(network, lower, upper)])


def random_line(layers: int) -> KnownInstance:
    """A random network with one input, with large biases that the next layer takes away again."""
    widths, parts = [1, *(integer(2, 5) for _ in range(layers))], list[nn.Module]()
    for before, after in itertools.pairwise(widths):
        parts += [nn.Linear(before, after), nn.ReLU()]
    network = nn.Sequential(*parts, nn.Linear(widths[-1], integer(2, 3)))
    dense = [layer for layer in network if isinstance(layer, nn.Linear)]
    for layer in dense:
        layer.weight.data.mul_(uniform(1, 3))
    if integer(0, 1):
        large, first, second = power_of_ten(1, 5), dense[0], dense[1]
        first.bias.data += large
        second.bias.data -= large * second.weight.data.sum(1)
    factor = power_of_ten(-12, 12) if integer(0, 1) else 1.0
    dense[-2].weight.data.mul_(factor)
    dense[-2].bias.data.mul_(factor)
    dense[-1].weight.data.div_(factor)
    return shifted_into_the_gap(network, *interval())


def copied_error(scale: float = 1.0) -> KnownInstance:
    """One rounding error, made once and copied 64 times. Class 0 wins by less than all the copies together.

    h = a·x + b with a large b is rounded. Class 0 has Σ h − 64·b + lead over 64 copies of h, class 1 has 64·a·x. With
    ``scale``, the first layer is multiplied by it and the last divided.
    """
    slope, offset = uniform(0.5, 2), power_of_ten(1, 4)
    lower, upper = interval()
    first = linear(torch.tensor([[slope], [COPIES * slope]]) * scale, torch.tensor([offset, 0.0]) * scale)
    copies = torch.cat([torch.tensor([[1.0, 0.0]]).repeat(COPIES, 1), torch.tensor([[0.0, 1.0]])])
    last = torch.zeros(2, COPIES + 1)
    last[0, :COPIES], last[1, COPIES] = 1.0, 1.0
    bias = torch.tensor([-COPIES * float(first.bias[0].detach().double() / scale), 0.0])
    network = nn.Sequential(first, nn.ReLU(), linear(copies), nn.ReLU(), linear(last / scale, bias))
    _, least = exact_minimum(network, lower, upper)
    unit = offset * 2.0**-24
    lead = COPIES * unit * (uniform(0.05, 0.4) if integer(0, 3) else -uniform(0.05, 0.4))
    _last(network).bias.data[1] -= lead - float(least)  # class 0 has a large bias, which would round this
    return network_instance(network, [judged(network, lower, upper)])


def underflow() -> KnownInstance:
    """A number that is scaled down until float32 loses digits of it, or all of it, and then up again."""
    down = power_of_ten(-31, -19.5), power_of_ten(-31, -19.5)
    up = 1 / down[1], 1 / down[0]
    lower, upper = interval()
    share = uniform(0.5, 0.99)
    first = linear(torch.tensor([[down[0]], [1.0]]))
    second = linear(torch.tensor([[down[1], 0.0], [0.0, 1.0]]))
    third = linear(torch.tensor([[up[0], 0.0], [0.0, 1.0]]))
    scores = torch.tensor([[up[1], 0.0], [0.0, share]])
    flip = integer(0, 1)  # class 0 is the one that loses its digits, or the other one
    network = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third, nn.ReLU(), linear(scores, torch.zeros(2)))
    if flip:
        _last(network).weight.data = torch.tensor([[0.0, share], [up[1], 0.0]])
    box = judged(network, lower, upper)
    if box.truth is Truth.HOLDS:  # other inputs may lose more of their digits than those that were tried
        raise ConstructionError
    return network_instance(network, [box])


def _upper_part(lower: float, upper: float) -> nn.Linear:
    """Return a layer of x less a number in the upper half of the interval, and x itself."""
    return linear(torch.ones(2, 1), torch.tensor([-uniform(0.5 * (lower + upper), upper), 0.0]))


def overflow() -> KnownInstance:
    """Two weights of about 1e20 in a row: class 0 wins, but float32 computes infinity, or infinity times zero.

    This happens in the upper half of the interval only, so that the image itself has the right label.
    """
    lower, upper = interval()
    layers: list[nn.Module] = [_upper_part(lower, upper), nn.ReLU()]
    for _ in range(2):
        layers += [linear(torch.diag(torch.tensor([power_of_ten(20, 25), 1.0]))), nn.ReLU()]
    last = pick(
        [
            torch.tensor([[2.0, 0.0], [1.0, 0.0]]),  # ∞ against ∞
            torch.tensor([[1.0, 0.0], [0.0, 1.0]]),  # ∞ against a number
            torch.tensor([[0.0, 1.0], [0.0, 0.5]]),  # 0·∞ in both
        ]
    )
    network = nn.Sequential(*layers, linear(last, torch.tensor([2.0, 0.0])))
    return network_instance(network, [judged(network, lower, upper)])


def overflow_and_back() -> KnownInstance:
    """A number is scaled up until float32 overflows, and down again: class 1 gets infinity instead of at most 1."""
    factors = [power_of_ten(20, 25), power_of_ten(20, 25)]
    lower, upper = interval()
    layers: list[nn.Module] = [_upper_part(lower, upper), nn.ReLU(), linear(torch.tensor([[1.0, 0.0]])), nn.ReLU()]
    for factor in [*factors, *(1 / factor for factor in factors)]:
        layers += [linear(torch.tensor([[factor]])), nn.ReLU()]
    network = nn.Sequential(*layers, linear(torch.tensor([[-1e-30], [1.0]]), torch.tensor([2.0, 0.0])))
    return network_instance(network, [judged(network, lower, upper)])


def overflow_in_bounds() -> KnownInstance:
    """A ReLU that is never active, with weights of 1e20 before and after it: only its bounds overflow.

    Class 0 loses at one end of the interval, or wins everywhere.
    """
    large, other = power_of_ten(19.5, 25), power_of_ten(19.5, 25)
    lower, upper = interval()
    first = linear(torch.tensor([[large], [1.0]]), torch.tensor([-1.5 * large * upper, 0.0]))
    second = linear(torch.tensor([[other, 0.0], [0.0, 1.0]]))
    bend = uniform(lower, upper) if integer(0, 2) else uniform(0.0, 0.9) * lower
    last = linear(torch.tensor([[pick([-1.0, 1.0]), 1.0], [0.0, 0.0]]), torch.tensor([-bend, 0.0]))
    network = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
    ends, truth = torch.tensor([[lower], [upper]]), Truth.VIOLATED if bend > lower else Truth.HOLDS
    return network_instance(network, [KnownBox(ends[0], ends[1], truth, witness=ends[0], exact=True)])


def long_sum() -> KnownInstance:
    """A score that is the sum of 16,512 terms, of one sign or of both; sometimes, many of them are zero.

    Each ReLU is always active, or never, so the score is a linear function. Its coefficients are computed without
    rounding.
    """
    lower, upper = interval()
    weights, biases = torch.rand(LONG_SUM) + 0.1, torch.rand(LONG_SUM) * pick([0.0, 1.0, 10.0])
    active = torch.rand(LONG_SUM) >= pick([0.0, 0.0, 0.5, 0.95])
    biases = torch.where(active, biases, -2 * upper * weights - 1)
    signs = torch.where(torch.rand(LONG_SUM) < pick([0.0, 0.5]), -1.0, 1.0) * pick([1e-2, 1.0])
    last = signs * (torch.rand(LONG_SUM) + 0.1)
    slope, constant = (exact_product(last[active], part[active]) for part in (weights, biases))
    end = lower if slope > 0 else upper
    least, worst = slope * Fraction(end) + constant, torch.tensor([end])
    scores = linear(torch.stack([last, torch.zeros(LONG_SUM)]), torch.tensor([-float(least), 0.0]))
    network = nn.Sequential(linear(weights[:, None], biases), nn.ReLU(), scores)
    margins = [float(found[0] - found[1]) for found in (float32_scores(network, worst, order) for order in ORDERS)]
    computed, size = min(margins), float(last.abs() @ (weights * upper + biases).clamp_min(0))
    exact = float(least + Fraction(float(scores.bias[0])))
    aim = pick([(exact - computed) * uniform(0.1, 0.9), -size * power_of_ten(-9, -4), size * power_of_ten(-2, -1)])
    scores.bias.data[0] += aim - exact
    least += Fraction(float(scores.bias[0]))
    box = torch.tensor([lower]), torch.tensor([upper])
    if least <= 0:
        known = refutes(network, worst)
        truth = Truth.VIOLATED if known else Truth.VIOLATED_EXACTLY
    elif violated_in_some_order(network, worst):
        truth = Truth.VIOLATED_BY_ROUNDING
    elif float(least) > 4 * gamma(LONG_SUM + 8, torch.float32) * size:  # the bias is not larger than the sum
        truth = Truth.HOLDS
    else:
        raise ConstructionError
    return network_instance(network, [KnownBox(*box, truth, worst, exact=True)])


def large_factor() -> KnownInstance:
    """One layer times W ≥ 9e8, the next one divided by W; the smallest margin is about −0.1, or 0.1."""
    factor, width = power_of_ten(8.96, 13), integer(2, 6)
    network = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, 3), nn.ReLU(), nn.Linear(3, 2))
    dense = [layer for layer in network if isinstance(layer, nn.Linear)]
    at = integer(0, 1)
    dense[at].weight.data.mul_(factor)
    dense[at].bias.data.mul_(factor)
    dense[at + 1].weight.data.div_(factor)
    lower, upper = interval()
    _, least = exact_minimum(network, lower, upper)
    _last(network).bias.data[0] += pick([-0.1, -0.1, 0.1]) - float(least)
    return network_instance(network, [judged(network, lower, upper)])


def cancellation() -> KnownInstance:
    """x + 2^k − 2^k, which is x without rounding and loses digits of x, or all of it, in float32."""
    lower, upper = interval()
    large = 2.0 ** integer(18, 40)
    level, sign = uniform(0.8 * lower, 1.2 * upper), pick([-1.0, 1.0])
    first, second = linear(torch.eye(1), torch.tensor([large])), linear(torch.eye(1), torch.tensor([-large]))
    last = linear(torch.tensor([[sign], [0.0]]), torch.tensor([-sign * level, 0.0]))
    network = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
    return network_instance(network, [judged(network, lower, upper)])


FAMILY = Family(
    "rounding",
    {
        "one hidden layer, one input": partial(random_line, 1),
        "two hidden layers, one input": partial(random_line, 2),
        "one error copied 64 times": copied_error,
        "one error copied, weights of 1e-30 and 1e30": partial(copied_error, 1e-30),
        "underflow": underflow,
        "overflow": overflow,
        "overflow and back": overflow_and_back,
        "overflow of bounds only": overflow_in_bounds,
        "sum of 16,512 terms": long_sum,
        "layers scaled by W and 1/W": large_factor,
        "x + 2^k - 2^k": cancellation,
    },
)
