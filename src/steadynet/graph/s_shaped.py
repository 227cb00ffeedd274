"""Sigmoid and tanh: smooth functions that rise in the shape of an S.

Both are tanh in other units, f(z) = offset + height · tanh(rate · z), with powers of two for constants. So whatever
encloses tanh encloses both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from steadynet.graph.operations import Monotone
from steadynet.graph.rounding import Rounding

LIBRARY_ROUNDINGS = 16  # a library computes f to within so many unit roundoffs: 8 units in the last place of 1


class Units(NamedTuple):
    """A function as tanh in other units: offset + height · tanh(rate · z)."""

    function: Callable[[Tensor], Tensor]
    offset: float
    height: float
    rate: float


UNITS = {"sigmoid": Units(torch.sigmoid, 0.5, 0.5, 0.5), "tanh": Units(torch.tanh, 0.0, 1.0, 1.0)}


@dataclass(frozen=True)
class SShaped(Monotone):
    """Sigmoid or tanh, element by element.

    No library rounds these functions correctly, and IEEE 754 does not say how they are computed. What is assumed of
    every execution, and of PyTorch when bounds are computed, is that the result lies within :data:`LIBRARY_ROUNDINGS`
    unit roundoffs of the true one: an absolute error, as some libraries clamp inputs that are far from zero.

    >>> SShaped("tanh").apply(torch.tensor([0.0])), SShaped("sigmoid").units.height
    (tensor([0.]), 0.5)
    """

    function: Literal["sigmoid", "tanh"]

    @property
    def units(self) -> Units:
        """The function as tanh in other units."""
        return UNITS[self.function]

    def apply(self, *inputs: Tensor) -> Tensor:
        return self.units.function(inputs[0])

    def rounding(self, *largest: Tensor) -> Rounding:
        # an input that may overflow may be no number, and then the output is none, although the function is bounded
        size = torch.where(largest[0].isfinite(), 1.0, torch.inf).to(largest[0])
        return Rounding(size, LIBRARY_ROUNDINGS, 1)
