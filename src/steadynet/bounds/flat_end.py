"""The end of a backward pass at a list of neurons, as :class:`~steadynet.bounds.symbolic_end.SymbolicEnd` at a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steadynet.bounds.linear_functions import LinearFunctions


@dataclass(frozen=True)
class FlatEnd:
    """Neurons z = centre + G · d + rest with |d| ≤ half and |rest| ≤ room, on the box of one property.

    Attributes:
        matrix: G as a sparse matrix (inputs, neurons).
        half: (inputs, 1).
        centre: (neurons, 1).
        room: (neurons, 1), with what rounding may add.
        lost: (1,), what underflow may take from a bound.
    """

    is_exact: ClassVar[bool] = False

    matrix: Tensor
    half: Tensor
    centre: Tensor
    room: Tensor
    lost: Tensor

    def lower(self, functions: LinearFunctions, owner: Tensor | None) -> Tensor:
        """Lower bounds of functions of the neurons, (n,) in float64, with every rounding counted."""
        columns = functions.coefficients.t().contiguous()
        own = (columns * self.centre - columns.abs() * self.room).sum(0, dtype=torch.float64)
        spread = (self.matrix @ columns).abs_().mul_(self.half).sum(0, dtype=torch.float64)
        return own - spread - self.lost
