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
from steadynet.bounds.patches import Patch
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
        # (properties, rows, columns, channels, input channels · size of the patch)
        self._coefficients = value.coefficients.flatten(4).permute(1, 2, 3, 0, 4).contiguous()
        overlap = [-(-size // stride) for size, stride in zip(value.patch.size, value.patch.stride, strict=True)]
        terms = value.centre.shape[1] * overlap[0] * overlap[1]  # of one coefficient of A·G
        size = value.largest
        relative = 2 * gamma(terms + 16, dtype) + 2 * LONG_SUM
        underflow = 16 * (terms + 16) * underflow_unit(dtype)
        total = 1 + half_width.flatten(1).sum(1)
        self._room = (value.radius + relative * size) * (1 + relative) + underflow * total.view(-1, 1, 1, 1)
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
        return smaller

    @property
    def properties(self) -> int:
        """How many properties it speaks of."""
        return len(self._half)

    def of_neurons(self, neurons: MapNeurons) -> FlatEnd:
        """The same for some neurons of the feature map, in a list, on the box of one property."""
        places = torch.from_numpy(neurons.places), torch.from_numpy(neurons.channels)
        known = self._coefficients[0].flatten(0, 1)[places]
        return FlatEnd(
            coefficients_of_input(known, self._patch, neurons, tuple(self._half.shape[1:])),
            self._half[0].flatten(1).t().reshape(-1, 1),
            self._centre[0].flatten()[neurons.elements, None],
            self._room[0].flatten()[neurons.elements, None],
            self._lost,
        )

    def lower(self, functions: LinearFunctions, owner: Tensor | None) -> Tensor:
        """Lower bounds of functions of the value, (n,) in float64, with every rounding counted."""
        if owner is None:
            owner = torch.arange(len(functions), device=self._half.device)
        room, centre = functions.gather(self._room, owner), functions.gather(self._centre, owner)
        coefficients = functions.coefficients
        constant = (coefficients * centre - coefficients.abs() * room).flatten(1).sum(1, dtype=torch.float64)
        constant = constant - self._lost[owner]
        for index in owner.unique().tolist():
            rows = (owner == index).nonzero().flatten()
            if functions.patch is None:
                constant[rows] -= self._spread_of_whole(coefficients[rows], index)
                continue
            assert functions.cells is not None
            cells, order = functions.cells[rows].sort(stable=True)
            rows = rows[order]
            _, counts = cells.unique_consecutive(return_counts=True)
            for some in rows.split(counts.tolist()):
                cell = int(functions.cells[some[0]])
                constant[some] -= self._spread_of_patches(coefficients[some], functions.patch, cell, index)
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
        seen = self._coefficients[index, top + first : top + last, left + begin : left + end]
        return self._spread(coefficients[:, :, first:last, begin:end], seen, (top + first, left + begin), index)

    def _spread(self, coefficients: Tensor, known: Tensor, corner: tuple[int, int], index: int) -> Tensor:
        """|A·G|·h for a block of the map with this corner: coefficients (n, channels, *block), known (*block, ...)."""
        height, width = coefficients.shape[2:]
        by_cell = coefficients.flatten(2).permute(2, 0, 1)  # (cells, n, channels)
        parts = by_cell @ known.flatten(0, 1)  # (cells, n, window)
        patch, image = self._patch, self._half.shape[2:]
        canvas = (height - 1) * patch.stride[0] + patch.size[0], (width - 1) * patch.stride[1] + patch.size[1]
        folded = F.fold(parts.permute(1, 2, 0), canvas, patch.size, stride=patch.stride)
        top, left = (corner[axis] * patch.stride[axis] - patch.offset[axis] for axis in (0, 1))
        half = self._half[index]
        half = F.pad(half, (-left, left + canvas[1] - image[1], -top, top + canvas[0] - image[0]))
        return (folded.abs() * half).flatten(1).sum(1, dtype=torch.float64)
