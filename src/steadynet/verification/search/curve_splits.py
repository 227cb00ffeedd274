"""Splitting a sigmoid or tanh: its input is held on one side of a point, where two tighter lines enclose it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.s_shaped_lines import Line, SShapedLines
from steadynet.graph.operations import Interval
from steadynet.graph.s_shaped import SShaped, Units
from steadynet.verification.search.bounding import BoundedBatch

Undo = tuple[Tensor, Tensor, Tensor, Tensor]  # a tensor (n, elements), rows and elements of it, and what stood there

_LEAST_LOSS = 1e-7  # of the function's height: lines that lose less are as good as the function itself


@dataclass(frozen=True)
class CurveLayer:
    """One layer of sigmoids or tanhs in a batch of subproblems.

    Attributes:
        position: its position in the graph.
        operation: the function.
        bounds: (n, elements), bounds of its input.
        middle: (n, elements), where each input would be split.
        lost: (2, n, elements), the most that the usual line below and the usual line above lose of the function.
    """

    position: int
    operation: SShaped
    bounds: Interval
    middle: Tensor
    lost: Tensor

    @classmethod
    def of(cls, batch: BoundedBatch, position: int) -> CurveLayer:
        """The layer at one position."""
        network, lines = batch.relaxed.network, batch.relaxed.curves[position]
        operation = network.graph.producer(position).operation
        assert isinstance(operation, SShaped)
        lower, upper = (side.flatten(1) for side in network.bounds[position])
        middle = _middle(lower, upper, operation.units)
        below, above = (_loss(line, (lower, middle, upper), operation) for line in (lines.lower, lines.upper))
        return cls(position, operation, Interval(lower, upper), middle, torch.stack([below, above]))

    def scores(self, coefficients: Tensor) -> Tensor:
        """What the lines cost the bound at most, (n, elements); −1 where there is nothing to split.

        Args:
            coefficients: (n, elements), those behind the layer.
        """
        lost = torch.where(coefficients > 0, self.lost[0], self.lost[1])
        possible = (self.bounds.lower < self.middle) & (self.middle < self.bounds.upper)
        possible = possible & (lost > _LEAST_LOSS * self.operation.units.height) & lost.isfinite()
        return torch.where(possible, (coefficients.abs() * lost).clamp_min(1e-12), -1.0)

    def at(self, row: int, element: int) -> float:
        """Where one neuron is split."""
        return float(self.middle[row, element])

    def fixed_lines(self, batch: BoundedBatch) -> SShapedLines:
        """The lines that each subproblem ended with, both below and above, as a copy that may be changed in place."""
        movable, share = batch.relaxed.curves[self.position].movable, batch.slopes.values[self.position].detach()
        assert movable is not None
        lower, upper = (
            movable.lines(LinearFunctions(torch.full_like(share, sign)), None, share.clone()) for sign in (1.0, -1.0)
        )
        return SShapedLines(_copied(lower), _copied(upper))

    def fix(self, lines: SShapedLines, row: Tensor, element: Tensor, sign: int) -> list[Undo]:
        """Set the lines of some neurons to those of one side of their points; returns what stood there before."""
        if not len(row):
            return []
        lower, upper = (side[row, element] for side in self.bounds)
        middle = self.middle[row, element]
        held = Interval(middle, upper) if sign > 0 else Interval(lower, middle)
        drawn = SShapedLines.around(held, self.operation.units)
        changed: list[Undo] = []
        for line, new in ((lines.lower, drawn.lower), (lines.upper, drawn.upper)):
            for tensor, values in ((line.slope, new.slope), (line.shift, new.shift)):
                flat = tensor.view(len(tensor), -1)
                changed.append((flat, row, element, flat[row, element]))
                flat[row, element] = values
        return changed


def _copied(line: Line) -> Line:
    return Line(line.slope.clone(), line.shift.clone())


def _middle(lower: Tensor, upper: Tensor, units: Units) -> Tensor:
    """Where the function has risen by half: in a wide interval, this is where it is steep."""
    low, high = (side.double() * units.rate for side in (lower, upper))
    half = ((low.tanh() + high.tanh()) / 2).atanh() / units.rate
    half = torch.where(half.isfinite(), half, (low + high) / (2 * units.rate))
    return torch.minimum(torch.maximum(half.to(lower), lower), upper)


def _loss(line: Line, points: tuple[Tensor, ...], operation: SShaped) -> Tensor:
    """The largest distance of lines from the function at some points of their intervals."""
    slope, shift = line.slope.flatten(1), line.shift.flatten(1)
    distances = [(operation.apply(point) - slope * point - shift).abs() for point in points]
    return torch.stack(distances).amax(0)
