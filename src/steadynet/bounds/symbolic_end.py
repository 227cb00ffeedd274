"""Backward passes that end early: at a value whose symbolic intervals are known, instead of at the input.

A pass arrives at value z with coefficients A. With z = c + G·d + rest, |d| ≤ h and |rest| ≤ r, A·z is at least

    A·c − |A·G|·h − |A|·r.

The widest layers of a network are mostly the first ones, and G is a narrow window of the input there. So this is much
cheaper than to go on. The bound is looser, since the rest of each neuron of z counts by itself.
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.bounds.flat_end import FlatEnd
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.patches import Patch, WindowedLayers, runs_of
from steadynet.bounds.sparse_layers import MapNeurons, coefficients_of_input
from steadynet.bounds.symbolic import SymbolicPass, SymbolicValue
from steadynet.graph.rounding import LONG_SUM, LONGEST_SUM, gamma, underflow_unit

END_DEPTH = 2  # ReLUs up to the end of a pass: behind more, windows are wide, and behind fewer, nothing is saved


def ends_before(position: int, symbolic: SymbolicPass) -> dict[int, SymbolicEnd]:
    """Where passes from a value may end early, if anywhere: not where symbolic intervals of the value are known."""
    if position in symbolic.values:
        return {}
    ends = [(place, value) for place, value in symbolic.values.items() if value.depth == END_DEPTH]
    return {place: SymbolicEnd(value, symbolic.half) for place, value in ends[:1]}


class SymbolicEnd:
    """The symbolic intervals of one feature map, as the end of backward passes.

    Args:
        value: the symbolic intervals.
        half_width: the half widths of the boxes, with room for rounding, (properties, \\*shape of the input).
    """

    is_exact: ClassVar[bool] = False

    def __init__(self, value: SymbolicValue, half_width: Tensor) -> None:
        assert value.coefficients is not None
        self._patch, self._half = value.patch, half_width
        self._centre, dtype = value.centre, value.centre.dtype
        # (properties, rows, columns, channels, size of the patch · input channels)
        self._coefficients = value.coefficients.permute(1, 2, 3, 0, 5, 6, 4).flatten(4).contiguous()
        overlap = [-(-size // stride) for size, stride in zip(value.patch.size, value.patch.stride, strict=True)]
        terms = value.centre.shape[1] * overlap[0] * overlap[1]  # of one coefficient of A·G
        size = value.largest
        relative = 2 * gamma(terms + 16, dtype) + 2 * LONG_SUM
        underflow = 16 * (terms + 16) * underflow_unit(dtype)
        total = 1 + half_width.flatten(1).sum(1)
        self._room = (value.radius + relative * size) * (1 + relative) + underflow * total.view(-1, 1, 1, 1)
        self._room_and_centre = WindowedLayers([self._room, self._centre])
        self._lost = underflow * (size.flatten(1).sum(1, dtype=torch.float64) + size[0].numel() * total.double())
        if max(size[0].numel(), half_width[0].numel()) > LONGEST_SUM:
            self._lost = torch.full_like(self._lost, torch.inf)

    def of_channels(self, channels: Tensor | None) -> SymbolicEnd:
        """The same for some channels of the feature map, for functions that see no others; None for all of them."""
        if channels is None:
            return self
        smaller = copy(self)
        smaller._coefficients = self._coefficients.index_select(3, channels)
        smaller._room, smaller._centre = (size.index_select(1, channels) for size in (self._room, self._centre))
        smaller._room_and_centre = WindowedLayers([smaller._room, smaller._centre])
        return smaller

    @property
    def properties(self) -> int:
        """How many properties it speaks of."""
        return len(self._half)

    def of_neurons(self, neurons: MapNeurons) -> FlatEnd:
        """The same for some neurons of the feature map, in a list, on the box of one property."""
        places = torch.from_numpy(neurons.places), torch.from_numpy(neurons.channels)
        known = self._coefficients[0].flatten(0, 1)[places].unflatten(1, (*self._patch.size, -1)).movedim(3, 1)
        return FlatEnd(
            coefficients_of_input(known.flatten(1), self._patch, neurons, tuple(self._half.shape[1:])),
            self._half[0].flatten(1).t().reshape(-1, 1),
            self._centre[0].flatten()[neurons.elements, None],
            self._room[0].flatten()[neurons.elements, None],
            self._lost,
        )

    def lower(self, functions: LinearFunctions, owner: Tensor | None) -> Tensor:
        """Lower bounds of functions of the value, (n,) in float64, with every rounding counted."""
        if owner is None:
            owner = torch.arange(len(functions), device=self._half.device)
        room, centre = functions.gather_all(self._room_and_centre, owner)
        coefficients = functions.coefficients
        least = torch.addcmul(coefficients * centre, coefficients.abs(), room, value=-1)
        constant = least.flatten(1).sum(1, dtype=torch.float64)
        constant = constant - self._lost[owner]
        if functions.patch is not None and functions.cells is not None:
            places = functions.patch.grid[0] * functions.patch.grid[1]
            runs = runs_of(owner * places + functions.cells)  # functions that see the same
            spreads = [
                self._spread_of_patches(mine, functions.patch, number % places, number // places)
                for mine, (_, number) in zip(coefficients.split([count for count, _ in runs]), runs, strict=True)
            ]
            return constant - torch.cat([constant[:0], *spreads])
        for index in owner.unique().tolist():
            rows = (owner == index).nonzero().flatten()
            constant[rows] -= self._spread_of_whole(coefficients[rows], index)
        return constant

    def _spread_of_whole(self, coefficients: Tensor, index: int) -> Tensor:
        """|A·G|·h of functions (n, channels, *map) of one property."""
        return self._spread(coefficients, self._coefficients[index], (0, 0), index)

    def _spread_of_patches(self, coefficients: Tensor, patch: Patch, cell: int, index: int) -> Tensor:
        """The same of functions (n, channels, *size) that see the patch of one cell."""
        top = cell // patch.grid[1] * patch.stride[0] - patch.offset[0]
        left = cell % patch.grid[1] * patch.stride[1] - patch.offset[1]
        height, width = self._patch.grid
        first, last = max(0, -top), min(patch.size[0], height - top)
        begin, end = max(0, -left), min(patch.size[1], width - left)
        if last <= first or end <= begin:  # all of it lies in the padding
            return torch.zeros(len(coefficients), dtype=torch.float64, device=coefficients.device)
        seen = self._coefficients[index, top + first : top + last, left + begin : left + end]
        return self._spread(coefficients[:, :, first:last, begin:end], seen, (top + first, left + begin), index)

    def _spread(self, coefficients: Tensor, known: Tensor, corner: tuple[int, int], index: int) -> Tensor:
        """|A·G|·h for a block of the map with this corner: coefficients (n, channels, *block), known (*block, ...)."""
        (height, width), patch, image = coefficients.shape[2:], self._patch, self._half.shape[1:]
        by_cell = coefficients.flatten(2).permute(2, 1, 0).contiguous()  # (cells, channels, n)
        parts = known.flatten(0, 1).transpose(1, 2) @ by_cell  # (cells, window, n)
        parts = parts.unflatten(1, (*patch.size, image[0])).unflatten(0, (height, width))
        # (rows, columns, ...), and then (columns, rows, input channels, n)
        by_row = added_up(parts.transpose(1, 2), patch.size[0], patch.stride[0])
        canvas = added_up(by_row.permute(1, 2, 0, 3, 4), patch.size[1], patch.stride[1])
        top, left = (corner[axis] * patch.stride[axis] - patch.offset[axis] for axis in (0, 1))
        across, down = left + canvas.shape[0] - image[2], top + canvas.shape[1] - image[1]
        half = F.pad(self._half[index], (-left, across, -top, down)).permute(2, 1, 0)
        return half.flatten().double() @ canvas.abs_().flatten(0, 2).double()


def added_up(parts: Tensor, size: int, stride: int) -> Tensor:
    """Windows that start a stride apart, (places, size, ...), as sums where they overlap, (length, ...).

    What lies between two starts is added at once. The length is a multiple of the stride, with zeros at the end.
    """
    overlap, places = -(-size // stride), len(parts)
    result = parts.new_zeros(places + overlap - 1, stride, *parts.shape[2:])
    for step in range(overlap):
        part = parts[:, step * stride : (step + 1) * stride]
        result[step : step + places, : part.shape[1]] += part
    return result.flatten(0, 1)
