"""Symbolic intervals: every number of a value as a linear function of the input, with a radius for what is not linear.

On the box, where the input is centre + d with |d| ≤ half width, each number v of a value is

    v = centre + coefficients · d + rest,      |rest| ≤ radius.

A convolution maps centre and coefficients by its weights W, and the radius by |W|. An unstable ReLU lies between two
parallel lines, whose distance goes into the radius. One pass from the input on serves all neurons, so it is much
cheaper than a backward pass for each of them. Its bounds are looser, but they settle most signs in the first layers,
where neurons are many and each sees a small part of the input.

Everything that rounds is part of the radius: the sums of this pass, and those of the network as it is run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.bounds.patches import Patch
from steadynet.bounds.relaxation import Relaxation
from steadynet.bounds.rounding import NetworkRounding, input_room
from steadynet.graph.graph import Node
from steadynet.graph.operations import Convolution, Interval, ReLU
from steadynet.graph.rounding import execution_error, gamma, underflow_unit

DEEPEST = 2  # ReLUs before a convolution that this pass goes through: behind more, its bounds settle little
_AT_A_RELU = 16  # roundings of a number at a ReLU, counted generously: products, sums, and those of the radius


@dataclass(frozen=True)
class SymbolicValue:
    """A feature map, or the input, over the boxes of some properties.

    Attributes:
        centre: (properties, \\*shape).
        radius: (properties, \\*shape).
        spread: (properties, \\*shape), at least |coefficients| · half width.
        patch: which part of the input each place of the feature map sees.
        coefficients: (channels, properties, \\*map, input channels, \\*size of the patch); None for the input itself,
            and where nothing reads them.
        depth: how many ReLUs are before it.
    """

    centre: Tensor
    radius: Tensor
    spread: Tensor
    patch: Patch
    coefficients: Tensor | None = None
    depth: int = 0

    @property
    def largest(self) -> Tensor:
        """(properties, \\*shape), at least the size of all terms of each number."""
        return self.centre.abs() + self.spread + self.radius

    def interval(self) -> Interval:
        """Bounds of the value, with every rounding counted."""
        room = self.spread + self.radius + 4 * torch.finfo(self.centre.dtype).eps * self.largest
        return Interval(self.centre - room, self.centre + room)


class SymbolicPass:
    """Carries symbolic intervals from the input of a network through its first convolutions.

    Args:
        box: the input boxes, one row per property, of images.
        most_entries: how many coefficients a value may have.

    Attributes:
        half: the half widths of the boxes, with room for rounding.
        values: the values that are known so far, by position in the graph.
        lines: the lines of the ReLUs that it went through, by position.
    """

    def __init__(self, box: Interval, most_entries: int) -> None:
        self.half = (box.upper - box.lower) / 2 + input_room(box)
        centre, image = (box.upper + box.lower) / 2, Patch.single(*box.lower.shape[2:])
        self.values = {0: SymbolicValue(centre, torch.zeros_like(centre), self.half, image)}
        self.lines: dict[int, Relaxation] = {}
        self._rounding: NetworkRounding | None = None
        self._most_entries = most_entries
        self._total = self.half.flatten(1).sum(1).view(-1, 1, 1, 1)

    def step(self, position: int, node: Node, rounding: NetworkRounding, lines: Relaxation | None) -> None:
        """Add the value of the next operation, if it is one that this pass goes through.

        Args:
            position: the value in the graph.
            node: its operation, and what that reads.
            rounding: the rounding of the network up to there.
            lines: the lines of the operation, if it is a ReLU.
        """
        operation, source = node.operation, self.values.get(node.inputs[0])
        if source is None:
            return
        if isinstance(operation, ReLU) and lines is not None and not operation.slope:
            if source.coefficients is not None:
                self.lines[position] = lines
                self.values[position] = self._through_relu(source, lines)
        elif isinstance(operation, Convolution) and operation.groups == 1 and operation.dilation == (1, 1):
            patch = _seen_through(source.patch, operation)
            window = self.half.shape[1] * patch.size[0] * patch.size[1]
            entries = len(self.half) * len(operation.weight) * patch.grid[0] * patch.grid[1] * window
            if source.depth <= DEEPEST and entries <= self._most_entries:
                self._rounding = rounding
                self.values[position] = self._through_convolution(operation, source, patch, position, rounding)

    def without_triangles(self, position: int, operation: Convolution) -> SymbolicValue | None:
        """A convolution's value without what its unstable ReLUs add to their upper slopes; None if it is not known.

        The ReLU before it is taken as slope · z with the slope of its upper line, which it is where its sign is known.

        Args:
            position: the value in a chain of operations.
            operation: what computes it.
        """
        known, relu = self.values.get(position), self.values.get(position - 2)
        if known is None or relu is None or self._rounding is None:
            return None
        lines = self.lines[position - 1]
        linear = self._through_relu(relu, replace(lines, upper_shift=torch.zeros_like(lines.upper_shift)))
        return self._through_convolution(operation, linear, known.patch, position, self._rounding, known)

    def sharpened(self, position: int, known: Interval) -> Interval:
        """The known bounds of a value, with those of this pass where they are tighter."""
        if position not in self.values:
            return known
        lower, upper = self.values[position].interval()
        lower = torch.where(lower > known.lower, lower, known.lower)
        upper = torch.where(upper < known.upper, upper, known.upper)
        return Interval(lower, torch.maximum(upper, lower))

    def _through_convolution(
        self,
        operation: Convolution,
        source: SymbolicValue,
        patch: Patch,
        position: int,
        rounding: NetworkRounding,
        known: SymbolicValue | None = None,
    ) -> SymbolicValue:
        """The value of a convolution; ``known`` is one with the same coefficients."""
        coefficients = _kernels(operation, source, patch) if known is None else known.coefficients
        assert coefficients is not None
        if source.coefficients is not None and known is None:
            coefficients = _convolved(operation, source.coefficients, source.patch, patch)
        dtype, terms = source.centre.dtype, operation.weight.shape[1:].numel() + 1
        relative = gamma(terms + 8, dtype)  # of the centre and of the coefficients, which take it of the spread
        radius = operation.spread(source.radius + relative * source.largest)
        if operation.bias is not None:
            radius = radius + relative * operation.bias.abs()[:, None, None]
        recorded = rounding.values[position]
        executed = execution_error(recorded.sums, rounding.execution, recorded.inputs)
        if isinstance(executed, Tensor):
            executed = executed.to(dtype).view(*executed.shape, *[1] * (4 - executed.dim()))
        numbers = 1 + self._total + source.largest.flatten(1).sum(1).view(-1, 1, 1, 1)
        underflow = 8 * (terms + 8) * underflow_unit(dtype) * numbers
        radius = (radius * (1 + 4 * relative) + executed + underflow) * (1 + 8 * torch.finfo(dtype).eps)
        spread = self._spread(coefficients, patch) if known is None else known.spread
        return SymbolicValue(operation.apply(source.centre), radius, spread, patch, coefficients, source.depth)

    def _spread(self, coefficients: Tensor, patch: Patch) -> Tensor:
        """At least |coefficients| · half width, (properties, channels, \\*map)."""
        half = patch.cut(self.half)  # (properties, cells, window)
        dtype, terms = half.dtype, half.shape[2]
        half = half.view(len(half), *patch.grid, -1, *patch.size).permute(4, 5, 3, 0, 1, 2)[..., None].contiguous()
        spread = sum(
            (row.abs() * widths).sum((0, 1)) for row, widths in zip(_by_window(coefficients), half, strict=True)
        )
        spread = spread.permute(0, 3, 1, 2)
        return spread * (1 + 2 * gamma(terms + 8, dtype)) + 2 * terms * underflow_unit(dtype)

    def _through_relu(self, source: SymbolicValue, lines: Relaxation) -> SymbolicValue:
        """relu(z) lies between slope · z and slope · z + shift, for the upper line's slope, which is in [0, 1]."""
        assert source.coefficients is not None
        slope, half, dtype = lines.upper_slope, lines.upper_shift / 2, lines.upper_slope.dtype
        underflow = underflow_unit(dtype) * (_AT_A_RELU + 2 * self._total)
        centre, radius = source.centre * slope + half, source.radius * slope + half
        spread = source.spread * slope * (1 + 4 * torch.finfo(dtype).eps) + underflow
        radius = radius + gamma(_AT_A_RELU, dtype) * (centre.abs() + spread + radius) + underflow
        coefficients = None
        if source.depth < DEEPEST:
            coefficients = _by_place(_by_window(source.coefficients) * slope.permute(0, 2, 3, 1))
        return SymbolicValue(centre, radius, spread, source.patch, coefficients, source.depth + 1)


def _seen_through(patch: Patch, convolution: Convolution) -> Patch:
    """Which part of the input each output of a convolution sees, if its inputs see ``patch``."""
    kernel, stride, padding = convolution.weight.shape[2:], convolution.stride, convolution.padding
    axes = (0, 1)
    return Patch(
        tuple((patch.grid[axis] + 2 * padding[axis] - kernel[axis]) // stride[axis] + 1 for axis in axes),  # type: ignore[arg-type]
        tuple(patch.stride[axis] * stride[axis] for axis in axes),  # type: ignore[arg-type]
        tuple(patch.offset[axis] + padding[axis] * patch.stride[axis] for axis in axes),  # type: ignore[arg-type]
        tuple(patch.size[axis] + (kernel[axis] - 1) * patch.stride[axis] for axis in axes),  # type: ignore[arg-type]
    )


def _by_window(coefficients: Tensor) -> Tensor:
    """Coefficients (*size of the patch, input channels, properties, *map, channels): how they lie in memory."""
    return coefficients.permute(5, 6, 4, 1, 2, 3, 0)


def _by_place(coefficients: Tensor) -> Tensor:
    """The same as a :class:`SymbolicValue` has them."""
    return coefficients.permute(6, 3, 4, 5, 2, 0, 1)


def _kernels(operation: Convolution, source: SymbolicValue, patch: Patch) -> Tensor:
    """The coefficients of a convolution of the input: its kernels, at every place."""
    kernels = operation.weight.permute(2, 3, 1, 0).contiguous()[:, :, :, None, None, None]
    return _by_place(kernels.expand(-1, -1, -1, len(source.centre), *patch.grid, -1))


def _convolved(operation: Convolution, known: Tensor, inner: Patch, patch: Patch) -> Tensor:
    """The coefficients behind a convolution, from those before it.

    Each row of the windows and each place of the kernel add one product, which is small enough for a cache.
    """
    weight, (height, width), (down, right) = operation.weight, patch.grid, operation.stride
    kernels = weight.permute(2, 3, 1, 0)
    padded = F.pad(_by_window(known), [0, 0, *[operation.padding[1]] * 2, *[operation.padding[0]] * 2])
    result = known.new_zeros(*patch.size, *padded.shape[2:4], height, width, len(weight))
    for row, dy in product(range(inner.size[0]), range(weight.shape[2])):
        of_row = result[row + dy * inner.stride[0]]
        seen_below = padded[row, :, :, :, dy : dy + (height - 1) * down + 1 : down]
        for dx in range(weight.shape[3]):
            seen = seen_below[:, :, :, :, dx : dx + (width - 1) * right + 1 : right]
            left = dx * inner.stride[1]
            part = of_row[left : left + inner.size[1]].view(-1, len(weight))
            part.addmm_(seen.reshape(-1, weight.shape[1]), kernels[dy, dx])
    return _by_place(result)
