"""The two lines that enclose an unstable ReLU, and the slopes of the lower line that an optimiser may move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.patches import WindowedLayers
from steadynet.bounds.s_shaped_lines import MovableLines
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import LONG_SUM, underflow_unit, unit_roundoff

FEW_UNSTABLE = 0.3  # share of the ReLUs of a layer, up to which only these take two lines


@dataclass(frozen=True)
class Relaxation:
    """Two lines around a ReLU r: lower_slope · z ≤ r(z) ≤ upper_slope · z + upper_shift on [l, u].

    Attributes:
        lower_slope: (properties, \\*shape), slope of the lower line, which goes through zero.
        upper_slope: (properties, \\*shape), slope of the upper line.
        upper_shift: (properties, \\*shape), value of the upper line at zero; positive exactly where r is unstable.
        slope: the ReLU's own slope below zero (0, or that of a leaky ReLU).
    """

    lower_slope: Tensor
    upper_slope: Tensor
    upper_shift: Tensor
    slope: float = 0.0

    @classmethod
    def crown(cls, bounds: Interval, slope: float = 0.0) -> Relaxation:
        """The lines of CROWN for a ReLU whose input lies in ``bounds``.

        The upper line is the chord from (l, r(l)) to (u, r(u)), raised so far that rounding, here and where a backward
        pass uses it, cannot put it below the ReLU. The lower line has slope 1 where u > −l and the ReLU's own slope
        elsewhere, whichever leaves the smaller area to the ReLU. Where the sign is known, both lines are the ReLU.

        >>> Relaxation.crown(Interval(torch.tensor([-1.0]), torch.tensor([3.0]))).upper_slope
        tensor([0.7500])
        """
        lower, upper = bounds
        below, above = lower.clamp_max(0), upper.clamp_min(0)
        chord = (above - slope * below) / (above - below).clamp_min(1e-30)
        active, inactive = lower >= 0, upper <= 0
        upper_slope = torch.where(active, 1.0, torch.where(inactive, slope, chord))
        room = (8 * unit_roundoff(lower.dtype) + LONG_SUM) * torch.maximum(above, -below)
        room = room + 8 * underflow_unit(lower.dtype)
        shift = torch.maximum((slope - chord) * below, (1 - chord) * above) + room
        shift = torch.where(active | inactive, 0.0, shift)
        steep = active | (~inactive & (above > -below))
        lower_slope = torch.full_like(lower, slope).masked_fill(steep, 1.0)
        return cls(lower_slope, upper_slope, shift, slope)

    @cached_property
    def difference(self) -> Tensor:
        """(properties, \\*shape), how much steeper the upper line is than the lower one."""
        return self.upper_slope - self.lower_slope

    @cached_property
    def drawn(self) -> WindowedLayers:
        """What a pass with these lines needs: lower slopes, differences of slopes, upper shifts."""
        return WindowedLayers([self.lower_slope, self.difference, self.upper_shift])

    @cached_property
    def lower_lines(self) -> WindowedLayers:
        """The lower slopes alone."""
        return WindowedLayers([self.lower_slope])

    def unstable_columns(self, owner: Tensor | None) -> Tensor | None:
        """The elements of the layer that are unstable for some of these properties; None if these are not few.

        Args:
            owner: (n,), properties in any order; None for all of them.
        """
        shift = self.upper_shift.flatten(1)
        if owner is not None and len(owner) and len(shift) > 1:
            shift = shift[int(owner.min()) : int(owner.max()) + 1]
        columns = (~(shift <= 0)).any(0).nonzero().flatten()  # also where bounds are not numbers
        return columns if len(columns) <= FEW_UNSTABLE * shift.shape[1] else None

    @cached_property
    def upper_lines(self) -> WindowedLayers:
        """What a pass with other lower slopes needs: upper slopes and shifts."""
        return WindowedLayers([self.upper_slope, self.upper_shift])

    def of_channels(self, channels: Tensor) -> Relaxation:
        """The lines of some channels of a feature map, or of some neurons of a layer."""
        lower_slope, upper_slope, upper_shift = (
            line.index_select(1, channels) for line in (self.lower_slope, self.upper_slope, self.upper_shift)
        )
        return Relaxation(lower_slope, upper_slope, upper_shift, self.slope)

    def writable_upper(self) -> Relaxation:
        """A copy whose upper line may be changed in place."""
        return Relaxation(self.lower_slope, self.upper_slope.clone(), self.upper_shift.clone(), self.slope)


Relax = Callable[[Interval, float], Relaxation]  # (bounds of the ReLU's input, its slope below zero) -> lines


@dataclass
class Slopes:
    """Slopes α of the lower lines that an optimiser moves, one set per linear function.

    Every α between the ReLU's two slopes gives a valid lower line. A stable neuron has one slope only: there
    ``smallest`` and ``largest`` meet. Keys are the positions of the ReLUs in the graph. Where a sigmoid or tanh stands,
    α says where the slope lies between the smallest (0) and the largest (1) that are worth taking, for the line that
    the function needs there.
    """

    values: dict[int, Tensor] = field(default_factory=dict)
    smallest: dict[int, Tensor] = field(default_factory=dict)
    largest: dict[int, Tensor] = field(default_factory=dict)

    @classmethod
    def fixed(cls, values: dict[int, Tensor]) -> Slopes:
        """Slopes that are used as they are: nothing moves them and nothing pulls them into a range."""
        return cls(values, largest=dict(values))

    def at(self, position: int, functions: LinearFunctions, owner: Tensor | None, relaxation: Relaxation) -> Tensor:
        """The slopes of one ReLU layer; those of CROWN when it is asked for the first time."""
        if position not in self.largest:
            fixed = functions.gather(relaxation.lower_slope, owner).expand_as(functions.coefficients)
            unstable = functions.gather(relaxation.upper_shift, owner) > 0
            self.smallest[position] = torch.where(unstable, relaxation.slope, fixed)
            self.largest[position] = torch.where(unstable, 1.0, fixed)
            start = self.values[position].to(fixed) if position in self.values else fixed
            start = torch.minimum(torch.maximum(start, self.smallest[position]), self.largest[position])
            self.values[position] = start.detach().clone().requires_grad_(torch.is_grad_enabled())
        return self.values[position]

    def shares(self, position: int, functions: LinearFunctions, owner: Tensor | None, lines: MovableLines) -> Tensor:
        """Where the slopes of one layer of sigmoids or tanhs lie; at their usual place when it is first asked for."""
        if position not in self.largest:
            usual = lines.start(functions, owner)
            self.smallest[position], self.largest[position] = torch.zeros_like(usual), torch.ones_like(usual)
            start = self.values[position].to(usual).clamp(0, 1) if position in self.values else usual
            self.values[position] = start.detach().clone().requires_grad_(torch.is_grad_enabled())
        return self.values[position]

    def restricted(self, rows: Tensor | slice, dtype: torch.dtype | None = None) -> Slopes:
        """Copies of the slopes of some functions, as a starting point."""
        return Slopes({position: value.detach()[rows].to(dtype) for position, value in self.values.items()})

    def of_function(self, row: int) -> dict[int, Tensor]:
        """The slopes of one function in half precision, for storing."""
        return {position: value.detach()[row].half() for position, value in self.values.items()}

    def clamp(self) -> None:
        """Pull every slope back into its range."""
        with torch.no_grad():
            for position, value in self.values.items():
                value.clamp_(self.smallest[position], self.largest[position])
