"""CROWN's backward pass: a linear function of a layer is carried back to the input, each ReLU between two lines.

:meth:`RelaxedNetwork.lower` is the heart of the verifier. It bounds many linear functions of many properties at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.patches import Matrices, transposed_on_patches
from steadynet.bounds.relaxation import Relax, Relaxation, Slopes
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Interval, ReLU, Scale, Shape
from steadynet.graph.pooling import MaxPool


@dataclass(frozen=True)
class BoundedNetwork:
    """One network over the input boxes of some properties, with bounds of every ReLU's input.

    Attributes:
        graph: the network.
        shapes: the shape of every value of the graph, without the batch axis.
        box: the input boxes, (properties, \\*shape of the input).
        bounds: the interval of the input of each ReLU and each maximum, by its position in the graph.
        relax: how a ReLU is enclosed; CROWN's lines unless told otherwise.
        matrices: a cache of convolutions on patches as matrices.
    """

    graph: Graph
    shapes: tuple[Shape, ...]
    box: Interval
    bounds: Mapping[int, Interval]
    relax: Relax = Relaxation.crown
    matrices: Matrices = field(default_factory=dict, repr=False)

    @property
    def output(self) -> int:
        """The position of the network's output."""
        return self.graph.output

    def of_properties(self, rows: Tensor) -> BoundedNetwork:
        """The same network over the boxes of some of the properties."""
        bounds = {position: known.of(rows) for position, known in self.bounds.items()}
        return replace(self, box=self.box.of(rows), bounds=bounds)

    def relus(self) -> list[Interval]:
        """The bounds of the ReLU inputs, in the order of the graph."""
        return [self.bounds[relu] for relu in self.graph.relus]

    def relaxed(self, up_to: int | None = None) -> RelaxedNetwork:
        """The network with the lines of every ReLU, or of those at positions ``up_to`` and before."""
        lines = {}
        for relu in self.graph.relus:
            if up_to is None or relu <= up_to:
                operation = self.graph.producer(relu).operation
                assert isinstance(operation, ReLU)
                lines[relu] = self.relax(self.bounds[relu], operation.slope)
        return RelaxedNetwork(self, lines)


@dataclass(frozen=True)
class BoundQuery:
    """Which linear functions of which value to bound, and how.

    Attributes:
        position: the value in the graph.
        functions: n linear functions of that value.
        owner: (n,), the property of each function; None if function i belongs to property i.
        slopes: lower slopes per function; None for those of the relaxation.
        multipliers: β · sign of split ReLUs per position. They are taken off the coefficients of the ReLU's input z,
            which keeps the bound valid wherever sign · z ≥ 0 (weak duality).
    """

    position: int
    functions: LinearFunctions
    owner: Tensor | None = None
    slopes: Slopes | None = None
    multipliers: Mapping[int, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.functions)


@dataclass
class Trail:
    """What one backward pass leaves for branching: coefficients behind each ReLU, and on the input."""

    behind: dict[int, Tensor] = field(default_factory=dict)
    on_input: Tensor | None = None


@dataclass(frozen=True)
class RelaxedNetwork:
    """A bounded network whose ReLUs are replaced by their two lines."""

    network: BoundedNetwork
    relaxations: Mapping[int, Relaxation]

    def lower(self, query: BoundQuery, trail: Trail | None = None) -> Tensor:
        """A lower bound of each function over the box of its property.

        Args:
            query: the functions to bound.
            trail: if given, receives the coefficients that the pass met on its way.

        Returns:
            The bounds, (n,). They are differentiable in the slopes and multipliers of the query.
        """
        graph, owner = self.network.graph, query.owner
        # pending[k]: the functions as functions of value k, for the values that are still to be substituted
        pending: dict[int, LinearFunctions] = {query.position: query.functions}
        constant: Tensor | float = 0.0
        for position in range(query.position, 0, -1):
            if position not in pending:
                continue
            functions = pending.pop(position)
            if trail is not None and position in self.relaxations:
                trail.behind[position] = functions.coefficients
            parts, added = self._substitute(position, functions, query)
            constant = constant + added
            for source, part in zip(graph.producer(position).inputs, parts, strict=True):
                known = pending.get(source)
                pending[source] = part if known is None else known.plus(part, self.network.shapes[source])
        if 0 not in pending:  # the value does not depend on the input
            return query.functions.coefficients.new_zeros(len(query)) + constant
        return self._smallest_on_box(pending[0], owner, trail) + constant

    def _substitute(
        self, position: int, functions: LinearFunctions, query: BoundQuery
    ) -> tuple[list[LinearFunctions], Tensor | float]:
        """Functions of one value as functions of the inputs of its operation, and the constants that this adds."""
        network, owner = self.network, query.owner
        node = network.graph.producer(position)
        operation, sources = node.operation, [network.shapes[source] for source in node.inputs]
        if isinstance(operation, ReLU):
            return _through_relu(position, functions, query, self.relaxations[position])
        if functions.patch is not None and isinstance(operation, Convolution) and operation.groups == 1:
            return _through_convolution_on_patches(functions, operation, sources[0], network.matrices)
        if functions.patch is not None and isinstance(operation, Scale):
            return _through_scale_on_patches(functions, operation, sources[0])
        whole = functions.whole(network.shapes[position])
        if isinstance(operation, MaxPool):
            return _through_maximum(whole, owner, operation, network.bounds[position], sources[0])
        coefficients, added = operation.backward(whole.coefficients, sources)
        return [LinearFunctions(part) for part in coefficients], added

    def _smallest_on_box(self, functions: LinearFunctions, owner: Tensor | None, trail: Trail | None) -> Tensor:
        """The minimum of functions of the input over the boxes: coefficients · centre − |coefficients| · half width."""
        if trail is not None:
            functions = functions.whole(self.network.shapes[0])
            trail.on_input = functions.coefficients
        box, coefficients = self.network.box, functions.coefficients
        centre = functions.gather((box.upper + box.lower) / 2, owner)
        half = functions.gather((box.upper - box.lower) / 2, owner)
        return (coefficients * centre - coefficients.abs() * half).flatten(1).sum(1)


def _through_relu(
    position: int, functions: LinearFunctions, query: BoundQuery, lines: Relaxation
) -> tuple[list[LinearFunctions], Tensor]:
    """Positive coefficients take the lower line, negative ones the upper line: a lower bound of A · r(z)."""
    owner, negative = query.owner, functions.coefficients.clamp_max(0)
    if query.slopes is None:
        lower_slope = functions.gather(lines.lower_slope, owner)
    else:
        lower_slope = query.slopes.at(position, functions, owner, lines)
    added = (negative * functions.gather(lines.upper_shift, owner)).flatten(1).sum(1)
    difference = functions.gather(lines.upper_slope, owner) - lower_slope
    coefficients = torch.addcmul(functions.coefficients * lower_slope, negative, difference)  # A⁺·lower + A⁻·upper
    if query.multipliers and position in query.multipliers:
        coefficients = coefficients - query.multipliers[position]  # the split's term −β·sign·z
    return [functions.with_coefficients(coefficients)], added


def _through_maximum(
    functions: LinearFunctions, owner: Tensor | None, operation: MaxPool, bounds: Interval, shape: Shape
) -> tuple[list[LinearFunctions], Tensor]:
    """A maximum is at least its best candidate, and at most the largest upper bound (exact if one candidate wins)."""
    best, slot = operation.candidates(bounds.lower).max(2, keepdim=True)
    upper = operation.candidates(bounds.upper)
    ceiling = upper.amax(2)
    wins = (best >= upper.scatter(2, slot, -torch.inf)).all(2)  # no other candidate rises above its lower bound
    pixels = torch.arange(shape[1] * shape[2], dtype=torch.float64, device=slot.device).view(1, 1, *shape[1:])
    where = operation.candidates(pixels).long().expand(*slot.shape[:2], -1, -1, -1).gather(2, slot).squeeze(2)
    chosen = where if owner is None else where[owner]
    wins, ceiling = (tensor if owner is None else tensor[owner] for tensor in (wins, ceiling))
    positive, negative = functions.coefficients.clamp_min(0), functions.coefficients.clamp_max(0)
    carried = (positive + torch.where(wins, negative, 0.0)).flatten(2)
    result = torch.zeros(len(carried), shape[0], shape[1] * shape[2], dtype=carried.dtype, device=carried.device)
    result = result.scatter_add(2, chosen.flatten(2), carried)
    added = torch.where(wins, 0.0, negative * ceiling).flatten(1).sum(1)
    return [LinearFunctions(result.view(len(result), *shape))], added


def _through_convolution_on_patches(
    functions: LinearFunctions, operation: Convolution, shape: Shape, matrices: Matrices
) -> tuple[list[LinearFunctions], Tensor | float]:
    assert functions.patch is not None
    assert functions.cells is not None
    added = 0.0 if operation.bias is None else functions.coefficients.sum((2, 3)) @ operation.bias
    patch = functions.patch.behind(operation)
    coefficients = transposed_on_patches(operation, functions.coefficients, matrices)
    coefficients = coefficients * patch.inside(shape, coefficients)[functions.cells]
    result = LinearFunctions(coefficients, patch, functions.cells)
    return [result.whole(shape) if patch.covers(shape) else result], added


def _through_scale_on_patches(
    functions: LinearFunctions, operation: Scale, shape: Shape
) -> tuple[list[LinearFunctions], Tensor]:
    assert functions.cells is not None
    factor, shift = (
        functions.gather(value.expand(shape)[None], torch.zeros_like(functions.cells))
        for value in (operation.factor, operation.shift)
    )
    added = (functions.coefficients * shift).flatten(1).sum(1)
    return [functions.with_coefficients(functions.coefficients * factor)], added
