"""Tiny networks evaluated without any rounding, and in float32 with sums in several orders.

Both take a sequence of linear layers and ReLUs on flat inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

Numbers = list[Fraction]
Float32 = NDArray[np.float32]
ZERO = Fraction(0)


def exact_scores(network: nn.Sequential, point: Sequence[Fraction | float]) -> Numbers:
    """Return the scores of a point, without rounding.

    >>> network = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    >>> _ = network[0].weight.data.fill_(3.0), network[0].bias.data.fill_(-1.0)
    >>> exact_scores(network, [Fraction(1, 2)])
    [Fraction(1, 2)]
    """
    values = [Fraction(value) for value in point]
    for layer in network:
        values = _exact_layer(layer, values) if isinstance(layer, nn.Linear) else [max(value, ZERO) for value in values]
    return values


def _exact_layer(layer: nn.Linear, values: Numbers) -> Numbers:
    biases = [0.0] * layer.out_features if layer.bias is None else layer.bias.tolist()
    return [
        sum((Fraction(weight) * value for weight, value in zip(row, values, strict=True) if weight), Fraction(bias))
        for row, bias in zip(layer.weight.tolist(), biases, strict=True)
    ]


def exact_product(first: Tensor, second: Tensor) -> Fraction:
    """Return Σ a·b of two vectors in float32 without rounding, also for thousands of terms.

    >>> import torch
    >>> exact_product(torch.tensor([1.0, 2.0**-30]), torch.tensor([1.0, 2.0**-30])) == 1 + Fraction(1, 2**60)
    True
    """
    ratios = [number.as_integer_ratio() for number in (first.double() * second.double()).tolist()]  # no rounding
    denominator = max(ratio[1] for ratio in ratios)  # all are powers of two
    return Fraction(sum(numerator * (denominator // own) for numerator, own in ratios), denominator)


def exact_margin(network: nn.Sequential, point: Sequence[Fraction | float], label: int = 0) -> Fraction:
    """Return the smallest margin of a label at a point, without rounding."""
    scores = exact_scores(network, point)
    return min(scores[label] - score for index, score in enumerate(scores) if index != label)


def exact_minimum(network: nn.Sequential, lower: float, upper: float) -> tuple[Fraction, Fraction]:
    """Return where, in an interval, the smallest margin of class 0 of a network with one input lies, and its value.

    The network is linear between the points where a ReLU changes its sign. These are found layer by layer: between two
    neighbouring points each pre-activation is linear, so its zero follows from its values at both.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    >>> for parameter, value in zip(network.parameters(), ([[1.0]], [-0.5], [[1.0], [0.0]], [0.25, 0.0])):
    ...     parameter.data = torch.tensor(value)
    >>> exact_minimum(network, 0.0, 1.0)
    (Fraction(0, 1), Fraction(1, 4))
    """
    points = [Fraction(lower), Fraction(upper)]
    for depth, layer in enumerate(network):
        if not isinstance(layer, nn.ReLU):
            continue
        below = nn.Sequential(*list(network)[:depth])
        values = [exact_scores(below, [point]) for point in points]
        zeros = set(points)
        for (left, right), (first, second) in zip(pairwise(points), pairwise(values), strict=True):
            for one, other in zip(first, second, strict=True):
                if one * other < 0:
                    zeros.add(left + (right - left) * one / (one - other))
        points = sorted(zeros)
    # With several margins, each is linear between the points, and so the smallest one is smallest at one of them.
    return min(((point, exact_margin(network, [point])) for point in points), key=lambda found: found[1])


def float32_scores(network: nn.Sequential, point: Tensor, order: str) -> Float32:
    """Return the scores of a point in float32, with all sums in one order.

    Args:
        network: The network.
        point: The point, in float32.
        order: A key of ``ORDERS``.
    """
    values = point.numpy().astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for layer in network:
            if isinstance(layer, nn.Linear):
                terms = layer.weight.detach().numpy() * values
                if layer.bias is not None:
                    terms = np.concatenate([layer.bias.detach().numpy()[:, None], terms], 1)
                values = ORDERS[order](terms)
            else:
                values = np.maximum(values, np.float32(0))
    return values


def violated_in_some_order(network: nn.Sequential, point: Tensor, label: int = 0) -> bool:
    """Return whether float32, with sums in some order, gives the label a negative margin, or one that is no number."""
    for order in ORDERS:
        scores = float32_scores(network, point, order)
        with np.errstate(invalid="ignore"):
            margins = scores[label] - np.delete(scores, label)
        if not (margins >= 0).all():  # so, too, if one is infinity less infinity
            return True
    return False


def _one_by_one(terms: Float32) -> Float32:
    """Sum each row from the left, with a rounding after every addition."""
    return np.cumsum(terms, axis=1, dtype=np.float32)[:, -1]


def _in_pairs(terms: Float32) -> Float32:
    """Sum each row by adding neighbours, again and again."""
    while terms.shape[1] > 1:
        if terms.shape[1] % 2:
            terms = np.concatenate([terms, np.zeros((len(terms), 1), np.float32)], 1)
        terms = terms[:, ::2] + terms[:, 1::2]
    return terms[:, 0]


# The orders in which the terms of each sum (rows, terms) are added; the bias is the first term.
ORDERS: dict[str, Callable[[Float32], Float32]] = {
    "from the left": _one_by_one,
    "from the right": lambda terms: _one_by_one(terms[:, ::-1]),
    "in pairs": _in_pairs,
    "ascending": lambda terms: _one_by_one(np.sort(terms, 1)),
    "descending": lambda terms: _one_by_one(-np.sort(-terms, 1)),
    "smallest first": lambda terms: _one_by_one(np.take_along_axis(terms, np.abs(terms).argsort(1), 1)),
}
