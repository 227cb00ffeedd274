"""Clipping as ReLUs, so that whatever bounds, splits or proves a ReLU also handles ReLU6 and hard tanh."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from steadynet.graph.operations import Operation, ReLU, Scale


def clipping(least: float, most: float, like: Tensor) -> list[Operation]:
    """Write min(max(x, least), most) with ReLUs: max(x, a) = a + relu(x − a) and min(x, b) = b − relu(b − x).

    Each operation reads the result of the one before it, so intervals stay exact.

    Args:
        least: The lower end of the range; −∞ for none.
        most: The upper end of the range; ∞ for none.
        like: A tensor with the type and the device of the constants.

    Returns:
        The operations, in order.

    >>> value = torch.tensor([-2.0, 1.0, 9.0])
    >>> for operation in clipping(-1.0, 6.0, value):
    ...     value = operation.apply(value)
    >>> value
    tensor([-1.,  1.,  6.])
    """
    least, most = (float(torch.tensor(end, dtype=like.dtype)) for end in (least, most))  # as a network is run
    result: list[Operation] = []
    factor, shift = 1.0, 0.0  # of the scale that comes before the next ReLU
    if least > -math.inf:
        result += [*_scale(1.0, -least, like), ReLU()]
        shift = least
    if most < math.inf:
        result += [*_scale(-1.0, most - shift, like, _rounded_terms(most, shift, like)), ReLU()]
        factor, shift = -1.0, most
    return result + _scale(factor, shift, like)


def _scale(factor: float, shift: float, like: Tensor, behind_shift: float | None = None) -> list[Operation]:
    if (factor, shift) == (1.0, 0.0):
        return []
    tensors = [torch.tensor(number, dtype=like.dtype, device=like.device) for number in (factor, shift)]
    if behind_shift is None:
        return [Scale(tensors[0], tensors[1])]
    return [Scale(tensors[0], tensors[1], torch.tensor(behind_shift, dtype=like.dtype, device=like.device), 1)]


def _rounded_terms(first: float, second: float, like: Tensor) -> float | None:
    """The size of the terms of a difference that has to be rounded; None if the precision holds it."""
    rounded = float(torch.tensor(first - second, dtype=like.dtype))
    exact = math.isfinite(rounded) and Fraction(first) - Fraction(second) == Fraction(rounded)
    return None if exact else abs(first) + abs(second)
