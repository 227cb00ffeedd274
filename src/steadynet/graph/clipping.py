"""Clipping as rectifiers: every bound, split and proof for ReLU holds for ReLU6 and hard tanh, too."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steadynet.graph.operations import Operation, ReLU, Scale


def clipping(least: float, most: float, like: Tensor) -> list[Operation]:
    """min(max(x, least), most), one operation after the other; an infinite bound is none. ``like`` gives the type.

    max(x, a) = a + relu(x − a) and min(x, b) = b − relu(b − x), one on top of the other, so that intervals stay exact.

    >>> value = torch.tensor([-2.0, 1.0, 9.0])
    >>> for operation in clipping(-1.0, 6.0, value):
    ...     value = operation.apply(value)
    >>> value
    tensor([-1.,  1.,  6.])
    """
    result: list[Operation] = []
    factor, shift = 1.0, 0.0  # of the scale that is due
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
    return [Scale(*(torch.tensor(number, dtype=like.dtype, device=like.device) for number in (factor, shift)))]
