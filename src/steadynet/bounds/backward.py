"""CROWN: linear functions of a layer carried back to the input, each ReLU held between two lines.

``Backward.lower`` is the heart of it: a lower bound of rows · value over the box, for many rows of many properties.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steadynet.bounds.patches import Matrices, Patch, transposed_on_windows
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Interval, MaxPool, Rectifier, Scale, Shape


@dataclass(frozen=True)
class Relaxation:
    """Two lines around a rectifier: lower_slope · z ≤ r(z) ≤ upper_slope · z + upper_shift on [l, u]."""

    lower_slope: Tensor
    upper_slope: Tensor
    upper_shift: Tensor
    slope: float = 0.0  # of the rectifier below zero

    @classmethod
    def of(cls, bounds: Interval, slope: float = 0.0) -> Relaxation:
        """The lines of CROWN: the chord above; below, of slope 1 and ``slope``, the one that wastes less area."""
        lower, upper = bounds
        below, above = lower.clamp_max(0), upper.clamp_min(0)
        chord = (above - slope * below) / (above - below).clamp_min(1e-30)
        active, inactive = lower >= 0, upper <= 0
        upper_slope = torch.where(active, 1.0, torch.where(inactive, slope, chord))
        shift = torch.where(active | inactive, 0.0, above * (1 - chord))
        steep = active | (~inactive & (above > -below))
        lower_slope = torch.full_like(lower, slope).masked_fill(steep, 1.0)
        return cls(lower_slope, upper_slope, shift, slope)


@dataclass
class Rows:
    """Linear functions of one value: coefficients (n, *shape), or (n, channels, *window) with a cell of a grid each."""

    coefficients: Tensor
    window: Patch | None = None
    cells: Tensor | None = None

    def per_row(self, layer: Tensor, owner: Tensor | None) -> Tensor:
        """What each row sees of a tensor a property, (properties, *shape): its owner's, in its window."""
        if self.window is None or self.cells is None:
            if owner is None or len(layer) == 1:
                return layer  # one property serves every row
            return layer.index_select(0, owner)
        properties = torch.arange(len(layer), device=layer.device) if owner is None else owner
        first, last = int(properties.min()), int(properties.max())
        cut = self.window.cut(layer[first : last + 1])  # (properties, positions, channels · size)
        chosen = cut.flatten(0, 1).index_select(0, (properties - first) * cut.shape[1] + self.cells)
        return chosen.view(self.coefficients.shape)

    def whole(self, shape: Shape) -> Rows:
        """The same rows over the whole layer."""
        if self.window is None or self.cells is None:
            return self
        height, width = shape[1:]
        window, (rows, channels) = self.window, self.coefficients.shape[:2]
        cell_y, cell_x = self.cells // window.grid[1], self.cells % window.grid[1]
        device = self.coefficients.device
        y = (cell_y * window.stride[0] - window.offset[0])[:, None] + torch.arange(window.size[0], device=device)
        x = (cell_x * window.stride[1] - window.offset[1])[:, None] + torch.arange(window.size[1], device=device)
        inside = ((y >= 0) & (y < height))[:, :, None] & ((x >= 0) & (x < width))[:, None, :]
        position = (y.clamp(0, height - 1)[:, :, None] * width + x.clamp(0, width - 1)[:, None, :]).flatten(1)
        values = (self.coefficients * inside[:, None]).flatten(2)
        result = torch.zeros(rows, channels, height * width, dtype=values.dtype, device=device)
        result = result.scatter_add(2, position[:, None].expand(-1, channels, -1), values)
        return Rows(result.view(rows, *shape))

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.coefficients + other.coefficients, self.window, self.cells)


@dataclass
class Slopes:
    """Lower slopes that an optimiser moves, a row each: any slope between the rectifier's two is a sound line.

    A stable neuron has one slope only: ``smallest`` and ``largest`` meet there.
    """

    values: dict[int, Tensor] = field(default_factory=dict)
    smallest: dict[int, Tensor] = field(default_factory=dict)
    largest: dict[int, Tensor] = field(default_factory=dict)

    def at(self, position: int, rows: Rows, owner: Tensor | None, relaxation: Relaxation) -> Tensor:
        """The slopes of one rectifier; CROWN's, the first time."""
        if position not in self.largest:
            fixed = rows.per_row(relaxation.lower_slope, owner).expand_as(rows.coefficients)
            unstable = rows.per_row(relaxation.upper_shift, owner) > 0
            self.smallest[position] = torch.where(unstable, relaxation.slope, fixed)
            self.largest[position] = torch.where(unstable, 1.0, fixed)
            start = self.values[position].to(fixed) if position in self.values else fixed
            start = torch.minimum(torch.maximum(start, self.smallest[position]), self.largest[position])
            self.values[position] = start.detach().clone().requires_grad_(torch.is_grad_enabled())
        return self.values[position]

    def restricted(self, rows: Tensor | slice, dtype: torch.dtype | None = None) -> Slopes:
        """Copies of the values of some rows, to be used as they are or as a start."""
        return Slopes({position: value.detach()[rows].to(dtype) for position, value in self.values.items()})

    def of_row(self, row: int) -> dict[int, Tensor]:
        """The values of one row in half precision, to be kept."""
        return {position: value.detach()[row].half() for position, value in self.values.items()}

    def clamp(self) -> None:
        """Every slope back into its range."""
        with torch.no_grad():
            for position, value in self.values.items():
                value.clamp_(self.smallest[position], self.largest[position])


@dataclass
class Trail:
    """What a backward pass leaves for others: coefficients behind each rectifier, and on the input."""

    behind: dict[int, Tensor] = field(default_factory=dict)
    on_input: Tensor | None = None


@dataclass(frozen=True)
class Backward:
    """One network over the boxes of some properties, ready to carry rows back.

    ``bounds`` holds the interval of every rectifier's (and maximum's) input, by the position of the node.
    """

    graph: Graph
    shapes: list[Shape]
    box: Interval
    bounds: dict[int, Interval]
    matrices: Matrices = field(default_factory=dict)

    def of_properties(self, rows: Tensor) -> Backward:
        """The same for some of the properties."""
        bounds = {key: Interval(known.lower[rows], known.upper[rows]) for key, known in self.bounds.items()}
        return replace(self, box=Interval(self.box.lower[rows], self.box.upper[rows]), bounds=bounds)

    def relaxation(self, position: int) -> Relaxation:
        """The lines of one rectifier for every property."""
        operation = self.graph.producer(position).operation
        assert isinstance(operation, Rectifier)
        return Relaxation.of(self.bounds[position], operation.slope)

    def lower(
        self,
        position: int,
        rows: Rows,
        owner: Tensor | None,
        *,
        relaxations: dict[int, Relaxation],
        slopes: Slopes | None = None,
        multipliers: dict[int, Tensor] | None = None,
        trail: Trail | None = None,
    ) -> Tensor:
        """A lower bound of each row · value ``position`` over its owner's box; shape (n,).

        ``owner``: the property of each row; None where row i belongs to property i. ``slopes``: lower slopes a row
        that may differ from CROWN's. ``multipliers``: β·sign of split rectifiers, taken off the coefficients of their
        inputs, which keeps the bound valid where sign · input ≥ 0 (weak duality).
        """
        pending: dict[int, Rows] = {position: rows}
        constant: Tensor | float = 0.0
        for current in range(position, 0, -1):
            if current not in pending:
                continue
            here, node = pending.pop(current), self.graph.producer(current)
            added: Tensor | float
            if isinstance(node.operation, Rectifier):
                if trail is not None:
                    trail.behind[current] = here.coefficients
                part, added = _through_rectifier(here, owner, relaxations[current], slopes, current)
                if multipliers and current in multipliers:
                    part.coefficients = part.coefficients - multipliers[current]
                parts = [part]
            else:
                parts, added = self._through(current, here, owner)
            constant = constant + added
            for source, part in zip(node.inputs, parts, strict=True):
                pending[source] = self._joined(pending.get(source), part, source)
        if 0 not in pending:  # the value is a constant
            return rows.coefficients.new_zeros(len(rows.coefficients)) + constant
        return self._concretise(pending[0], owner, trail) + constant

    def _through(self, position: int, rows: Rows, owner: Tensor | None) -> tuple[list[Rows], Tensor | float]:
        """Rows behind one operation that is no rectifier, as rows before it, and what that adds."""
        node = self.graph.producer(position)
        operation, sources = node.operation, [self.shapes[source] for source in node.inputs]
        if rows.window is not None and isinstance(operation, Convolution) and operation.groups == 1:
            return _through_windowed_convolution(rows, operation, sources[0], self.matrices)
        if rows.window is not None and isinstance(operation, Scale):
            return _through_windowed_scale(rows, operation, sources[0])
        whole = rows.whole(self.shapes[position])
        if isinstance(operation, MaxPool):
            return _through_maximum(whole, owner, operation, self.bounds[position], sources[0])
        coefficients, added = operation.backward(whole.coefficients, sources)
        return [Rows(part) for part in coefficients], added

    def _joined(self, known: Rows | None, part: Rows, position: int) -> Rows:
        if known is None:
            return part
        if known.window != part.window:
            known, part = known.whole(self.shapes[position]), part.whole(self.shapes[position])
        return known + part

    def _concretise(self, rows: Rows, owner: Tensor | None, trail: Trail | None) -> Tensor:
        if trail is not None:
            rows = rows.whole(self.shapes[0])
            trail.on_input = rows.coefficients
        centre = rows.per_row((self.box.upper + self.box.lower) / 2, owner)
        half = rows.per_row((self.box.upper - self.box.lower) / 2, owner)
        coefficients = rows.coefficients
        return (coefficients * centre - coefficients.abs() * half).flatten(1).sum(1)


def _through_rectifier(
    rows: Rows, owner: Tensor | None, relaxation: Relaxation, slopes: Slopes | None, position: int
) -> tuple[Rows, Tensor]:
    """A⁺ takes the lower line, A⁻ the upper one: together a lower bound of A · r(z)."""
    negative = rows.coefficients.clamp_max(0)
    if slopes is None:
        lower_slope = rows.per_row(relaxation.lower_slope, owner)
    else:
        lower_slope = slopes.at(position, rows, owner, relaxation)
    added = (negative * rows.per_row(relaxation.upper_shift, owner)).flatten(1).sum(1)
    difference = rows.per_row(relaxation.upper_slope, owner) - lower_slope
    coefficients = torch.addcmul(rows.coefficients * lower_slope, negative, difference)  # A⁺·lower + A⁻·upper
    return Rows(coefficients, rows.window, rows.cells), added


def _through_maximum(
    rows: Rows, owner: Tensor | None, operation: MaxPool, bounds: Interval, shape: Shape
) -> tuple[list[Rows], Tensor]:
    """From below a maximum is at least its best candidate; from above, the largest upper bound (exact if one wins)."""
    best, slot = operation.candidates(bounds.lower).max(2, keepdim=True)
    upper = operation.candidates(bounds.upper)
    ceiling = upper.amax(2)
    wins = (best >= upper.scatter(2, slot, -torch.inf)).all(2)  # no other candidate rises above its lower bound
    pixels = torch.arange(shape[1] * shape[2], dtype=torch.float64, device=slot.device).view(1, 1, *shape[1:])
    where = operation.candidates(pixels).long().expand(*slot.shape[:2], -1, -1, -1).gather(2, slot).squeeze(2)
    chosen = where if owner is None else where[owner]
    wins, ceiling = (tensor if owner is None else tensor[owner] for tensor in (wins, ceiling))
    positive, negative = rows.coefficients.clamp_min(0), rows.coefficients.clamp_max(0)
    carried = (positive + torch.where(wins, negative, 0.0)).flatten(2)
    result = torch.zeros(len(carried), shape[0], shape[1] * shape[2], dtype=carried.dtype, device=carried.device)
    result = result.scatter_add(2, chosen.flatten(2), carried)
    added = torch.where(wins, 0.0, negative * ceiling).flatten(1).sum(1)
    return [Rows(result.view(len(result), *shape))], added


def _through_windowed_convolution(
    rows: Rows, operation: Convolution, shape: Shape, matrices: Matrices
) -> tuple[list[Rows], Tensor | float]:
    assert rows.window is not None
    assert rows.cells is not None
    added = 0.0 if operation.bias is None else rows.coefficients.sum((2, 3)) @ operation.bias
    window = rows.window.behind(operation)
    coefficients = transposed_on_windows(operation, rows.coefficients, matrices)
    coefficients = coefficients * window.inside(shape, coefficients)[rows.cells]
    result = Rows(coefficients, window, rows.cells)
    return [result.whole(shape) if window.covers(shape) else result], added


def _through_windowed_scale(rows: Rows, operation: Scale, shape: Shape) -> tuple[list[Rows], Tensor]:
    assert rows.window is not None
    assert rows.cells is not None
    factor, shift = (
        rows.per_row(value.expand(shape)[None], torch.zeros_like(rows.cells))
        for value in (operation.factor, operation.shift)
    )
    added = (rows.coefficients * shift).flatten(1).sum(1)
    return [Rows(rows.coefficients * factor, rows.window, rows.cells)], added
