"""Clipping as ReLUs, so that whatever bounds, splits or proves a ReLU also handles ReLU6 and hard tanh."""

from __future__ import annotations

import math

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
    result: list[Operation] = []
    factor, shift = 1.0, 0.0  # of the scale that comes before the next ReLU
    if least > -math.inf:
        result += [*_scale(1.0, -least, like), ReLU()]
        shift = least
    if most < math.inf:
        result += [*_scale(-1.0, most - shift, like), ReLU()]
        factor, shift = -1.0, most
    return result + _scale(factor, shift, like)


def _scale(factor: float, shift: float, like: Tensor) -> list[Operation]:
    if (factor, shift) == (1.0, 0.0):
        return []
    constants = [torch.tensor(number, dtype=like.dtype, device=like.device) for number in (factor, shift)]
    return [Scale(constants[0], constants[1])]
