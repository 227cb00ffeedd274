"""What a backward pass is asked, and what it leaves: functions to bound, their bounds, and the trail of a pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.relaxation import Slopes


@dataclass(frozen=True)
class BoundQuery:
    """Which linear functions of which value to bound, and how.

    Attributes:
        position: the value in the graph.
        functions: n linear functions of that value.
        owner: (n,), the property of each function; None if function i belongs to property i.
        slopes: lower slopes per function; None for those of the relaxation.
        multipliers: β · sign of split ReLUs per position. They are taken off the coefficients of the ReLU's input z,
            which keeps the bound valid wherever sign · z ≥ 0 (weak duality). A multiplier m of a sigmoid's or tanh's
            input speaks of its bounds: of z ≥ l where m > 0, and of z ≤ u where m < 0.
    """

    position: int
    functions: LinearFunctions
    owner: Tensor | None = None
    slopes: Slopes | None = None
    multipliers: Mapping[int, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.functions)


@dataclass(frozen=True)
class LowerBound:
    """Lower bounds of some functions, as computed, and what rounding may have added to them.

    Attributes:
        value: (n,), the bounds as computed, differentiable.
        error: (n,), what rounding may have added; None if nobody asked for proofs.
    """

    value: Tensor
    error: Tensor | None = None

    @property
    def proved(self) -> Tensor:
        """(n,), bounds that hold with every rounding counted; −∞ where something is not a number."""
        proved = self.value.detach()
        if self.error is not None:
            proved = proved - self.error
            proved = torch.where(proved < torch.inf, proved, -torch.inf)  # an overflow proves nothing
        return torch.where(proved.isnan(), -torch.inf, proved)

    def bound(self, dtype: torch.dtype) -> Tensor:
        """The bounds in a precision of choice: with every rounding counted, rounded down; else differentiable."""
        if self.error is None:
            return self.value.to(dtype)
        return rounded_down(self.proved, dtype)


def rounded_down(bound: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest numbers of this precision that are not above the bounds."""
    rounded = bound.to(dtype)
    return torch.where(rounded > bound, torch.nextafter(rounded, torch.full_like(rounded, -torch.inf)), rounded)


@dataclass
class Trail:
    """What one backward pass leaves: coefficients behind each ReLU, and its linear lower bounds on the input.

    On the whole box, function k is at least on_input[k] · x + constant[k], less the error of its bound.

    Attributes:
        behind: per ReLU position, the coefficients behind that ReLU.
        on_input: (n, \\*shape of the input), the coefficients on the input; None if nothing depends on it.
        constant: (n,), the constants.
        is_all: whether nothing else is wanted of the pass. Then its bounds lack what the input adds to them.
    """

    behind: dict[int, Tensor] = field(default_factory=dict)
    on_input: Tensor | None = None
    constant: Tensor | None = None
    is_all: bool = False
