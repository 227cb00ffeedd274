"""The lines that enclose a layer of sigmoids or tanhs, and how an optimiser moves them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.tanh_lines import Piece, SlopeRange, intercept_below, slopes_below
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import LONG_SUM, underflow_unit, unit_roundoff
from steadynet.graph.s_shaped import Units


@dataclass(frozen=True)
class Line:
    """Lines z ↦ slope · z + shift."""

    slope: Tensor
    shift: Tensor


@dataclass(frozen=True)
class MovableLines:
    """What the lines of a layer are drawn from, for an optimiser that moves their slopes between two best ones.

    Attributes:
        units: the function as tanh in other units.
        below: (properties, \\*shape), pieces of tanh whose lines below are wanted.
        above: the same turned by half a circle, for lines above.
        slopes_below: the slopes of lines below, of tanh.
        slopes_above: the slopes of lines above.
    """

    units: Units
    below: Piece
    above: Piece
    slopes_below: SlopeRange
    slopes_above: SlopeRange

    def start(self, functions: LinearFunctions, owner: Tensor | None) -> Tensor:
        """Where each function's usual line lies between its smallest (0) and its largest slope (1)."""
        smallest, largest, usual = self._slopes(functions, owner)
        share = (usual - smallest) / (largest - smallest).clamp_min(1e-12)
        return share.clamp(0, 1).to(functions.coefficients.dtype).expand_as(functions.coefficients)

    def lines(self, functions: LinearFunctions, owner: Tensor | None, share: Tensor) -> Line:
        """The line that each function needs: below where its coefficient is positive, above elsewhere.

        Args:
            functions: functions of the layer's output.
            owner: the property of each function; None if function i belongs to property i.
            share: (n, \\*shape), where each slope lies between the smallest and the largest; any number is valid.
        """
        smallest, largest, _ = self._slopes(functions, owner)
        negative = functions.coefficients < 0
        below, above = (_gathered(piece, functions, owner) for piece in (self.below, self.above))
        slope = smallest + share.double() * (largest - smallest)
        return _line(slope, above.where(negative, below), negative, self.units, functions.coefficients.dtype)

    def _slopes(self, functions: LinearFunctions, owner: Tensor | None) -> SlopeRange:
        negative = functions.coefficients < 0
        pairs = zip(self.slopes_above, self.slopes_below, strict=True)
        return SlopeRange(
            *(torch.where(negative, functions.gather(one, owner), functions.gather(two, owner)) for one, two in pairs)
        )


def _gathered(piece: Piece, functions: LinearFunctions, owner: Tensor | None) -> Piece:
    return Piece(*(functions.gather(part, owner) for part in piece))


@dataclass(frozen=True)
class SShapedLines:
    """Two lines around each function of a layer: lower ≤ f(z) ≤ upper while z is in its bounds.

    Attributes:
        lower: (properties, \\*shape), the lines below.
        upper: (properties, \\*shape), the lines above.
        movable: what other lines are drawn from; None for lines that are used as they are.
    """

    lower: Line
    upper: Line
    movable: MovableLines | None = None

    @classmethod
    def around(cls, bounds: Interval, units: Units) -> SShapedLines:
        """The usual lines for inputs in ``bounds``.

        >>> from steadynet.graph.s_shaped import UNITS
        >>> lines = SShapedLines.around(Interval(torch.tensor([0.0]), torch.tensor([2.0])), UNITS["tanh"])
        >>> lines.lower.slope, lines.upper.slope  # the chord; the tangent in the middle
        (tensor([0.4820]), tensor([0.4200]))
        """
        below = Piece.of(bounds.lower.double() * units.rate, bounds.upper.double() * units.rate)
        above = below.turned()
        ranges = slopes_below(below), slopes_below(above)
        dtype = bounds.lower.dtype
        lower = _line(ranges[0].usual, below, torch.zeros_like(below.low, dtype=torch.bool), units, dtype)
        upper = _line(ranges[1].usual, above, torch.ones_like(below.low, dtype=torch.bool), units, dtype)
        return cls(lower, upper, MovableLines(units, below, above, *ranges))

    def needed(self, functions: LinearFunctions, owner: Tensor | None) -> Line:
        """The line that each function needs, as it is: lower where its coefficient is positive, upper elsewhere."""
        negative, (lower, upper) = functions.coefficients < 0, (self.lower, self.upper)
        slope = torch.where(negative, functions.gather(upper.slope, owner), functions.gather(lower.slope, owner))
        shift = torch.where(negative, functions.gather(upper.shift, owner), functions.gather(lower.shift, owner))
        return Line(slope, shift)


def _line(slope: Tensor, piece: Piece, turned: Tensor, units: Units, dtype: torch.dtype) -> Line:
    """Lines below f, or above f where the pieces are ``turned``, in the precision of a backward pass.

    The slope is rounded first, and the shift belongs to the rounded slope. It is moved outward so far that no rounding,
    here or where a pass multiplies and adds it up, makes the line cross f. (A pass rounds coefficient · slope: this
    is counted where it is counted for ReLUs, at the value before.)

    Args:
        slope: slopes of lines of tanh, in float64.
        piece: the pieces of tanh.
        turned: where the pieces are turned, so that lines below them are lines above tanh.
        units: the function as tanh in other units.
        dtype: the precision.
    """
    scale = units.height * units.rate  # of slopes; a power of two, so that nothing is rounded
    rounded = (slope.clamp_min(0) * scale).to(dtype)
    sign = torch.where(turned, -1.0, 1.0).to(piece.low)
    of_tanh = intercept_below(rounded.double() / scale, piece)
    shift = units.offset + sign * units.height * of_tanh
    room = (4 * unit_roundoff(dtype) + LONG_SUM) * shift.detach().abs() + 8 * underflow_unit(dtype)
    return Line(rounded, (shift - sign * room).to(dtype))
