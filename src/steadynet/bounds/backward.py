"""CROWN's backward pass: a linear function of a layer is carried back to the input, each ReLU between two lines.

:meth:`RelaxedNetwork.lower` is the heart of the verifier. It bounds many linear functions of many properties at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from steadynet.bounds.exact_end import ExactEnd
from steadynet.bounds.flat_end import FlatEnd
from steadynet.bounds.linear_functions import LinearFunctions, SingleNeurons
from steadynet.bounds.patches import Matrices, WindowedLayers
from steadynet.bounds.queries import BoundQuery, LowerBound, Trail
from steadynet.bounds.relaxation import Relax, Relaxation
from steadynet.bounds.rounding import NetworkRounding, PassErrors, cost_of_errors, input_room, sum_of_negatives
from steadynet.bounds.s_shaped_lines import SShapedLines
from steadynet.bounds.sparse_layers import SparseConvolution
from steadynet.bounds.substitution import (
    held,
    lost_by_cancelling,
    through_convolution_on_patches,
    through_few_unstable,
    through_maximum,
    through_relu_in_runs,
    through_scale_on_patches,
)
from steadynet.bounds.symbolic import SymbolicPass
from steadynet.bounds.symbolic_end import SymbolicEnd
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Dense, Interval, ReLU, Scale, Shape
from steadynet.graph.pooling import MaxPool
from steadynet.graph.s_shaped import SShaped


@dataclass(frozen=True)
class BoundedNetwork:
    """One network over the input boxes of some properties, with bounds of every ReLU's input.

    What is said of ReLUs holds for sigmoids and tanhs as well, unless the two are told apart.

    Attributes:
        graph: the network.
        shapes: the shape of every value of the graph, without the batch axis.
        box: the input boxes, (properties, \\*shape of the input).
        bounds: the interval of the input of each ReLU, sigmoid, tanh and maximum, by its position in the graph.
        relax: how a ReLU is enclosed; CROWN's lines unless told otherwise.
        rounding: how the network and a pass round; None for bounds that are no proofs, as in training.
        matrices: a cache of convolutions on patches as matrices.
        drawn: a cache of the lines of ReLUs, with the bounds that they were drawn for.
        drawn_curves: the same for sigmoids and tanhs.
        ends: values at which a pass may end, by position: exact ends always, others if it shall end early.
        symbolic: the symbolic intervals of the first layers, if passes may make use of them.
        exact_ends: a cache of exact ends, with the upper bounds and the symbolic intervals that these were made from.
        sparse: a cache of convolutions between active neurons, with the upper bounds that these were found by.
    """

    graph: Graph
    shapes: tuple[Shape, ...]
    box: Interval
    bounds: Mapping[int, Interval]
    relax: Relax = Relaxation.crown
    rounding: NetworkRounding | None = None
    matrices: Matrices = field(default_factory=dict, repr=False)
    drawn: dict[int, tuple[Interval, Relax, Relaxation]] = field(default_factory=dict, repr=False, compare=False)
    drawn_curves: dict[int, tuple[Interval, SShapedLines]] = field(default_factory=dict, repr=False, compare=False)
    ends: Mapping[int, SymbolicEnd | FlatEnd | ExactEnd] = field(default_factory=dict, repr=False)
    symbolic: SymbolicPass | None = field(default=None, repr=False, compare=False)
    exact_ends: dict[int, tuple[Tensor, SymbolicPass, ExactEnd | None]] = field(
        default_factory=dict, repr=False, compare=False
    )
    sparse: dict[int, tuple[Sequence[Tensor], SparseConvolution]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def output(self) -> int:
        """The position of the network's output."""
        return self.graph.output

    def of_properties(self, rows: Tensor) -> BoundedNetwork:
        """The same network over the boxes of some of the properties."""
        bounds = {position: known.of(rows) for position, known in self.bounds.items()}
        rounding = None if self.rounding is None else self.rounding.of_properties(rows)
        return replace(self, box=self.box.of(rows), bounds=bounds, rounding=rounding)

    def relus(self) -> list[Interval]:
        """The bounds of the ReLU inputs, in the order of the graph."""
        return [self.bounds[relu] for relu in self.graph.relus]

    def relaxed(self, up_to: int | None = None, early: bool = False) -> RelaxedNetwork:
        """The network with the lines of every ReLU, or of those at positions ``up_to`` and before.

        Its passes end ``early`` if asked to, where they can. At exact ends they always end.
        """
        relus = {place: self.lines(place) for place in self.graph.relus if up_to is None or place <= up_to}
        curves = {place: self.curves(place) for place in self.graph.s_shaped if up_to is None or place <= up_to}
        errors = None if self.rounding is None else self.rounding.errors_of_pass(self.box.lower.dtype)
        ends = {place: end for place, end in self.ends.items() if early or end.is_exact}
        return RelaxedNetwork(self, relus, errors, curves, ends)

    def lines(self, relu: int) -> Relaxation:
        """The lines of one ReLU layer. They are drawn once for the same bounds."""
        bounds, operation = self.bounds[relu], self.graph.producer(relu).operation
        assert isinstance(operation, ReLU)
        known = self.drawn.get(relu)
        if known is None or known[0] is not bounds or known[1] is not self.relax:
            known = self.drawn[relu] = bounds, self.relax, self.relax(bounds, operation.slope)
        return known[2]

    def curves(self, position: int) -> SShapedLines:
        """The lines around one layer of sigmoids or tanhs. They are drawn once for the same bounds."""
        bounds, operation = self.bounds[position], self.graph.producer(position).operation
        assert isinstance(operation, SShaped)
        known = self.drawn_curves.get(position)
        if known is None or known[0] is not bounds:
            known = self.drawn_curves[position] = bounds, SShapedLines.around(bounds, operation.units)
        return known[1]


@dataclass(frozen=True)
class RelaxedNetwork:
    """A bounded network whose ReLUs are replaced by their two lines, and so are its sigmoids and tanhs (curves)."""

    network: BoundedNetwork
    relaxations: Mapping[int, Relaxation]
    errors: PassErrors | None = None
    curves: Mapping[int, SShapedLines] = field(default_factory=dict)
    ends: Mapping[int, SymbolicEnd | FlatEnd | ExactEnd] = field(default_factory=dict)

    def lower(self, query: BoundQuery, trail: Trail | None = None) -> LowerBound:
        """Bound each function from below over the box of its property.

        Args:
            query: the functions to bound.
            trail: if given, receives the coefficients that the pass met on its way.

        Returns:
            The bounds, (n,). Their values are differentiable in the slopes and multipliers of the query.
        """
        # pending[k]: the functions as functions of value k, for the values that are still to be substituted
        pending: dict[int, LinearFunctions] = {query.position: query.functions}
        constant: Tensor | float = 0.0
        error: Tensor | float = 0.0
        for position in range(query.position, 0, -1):
            if position not in pending:
                continue
            functions = pending.pop(position)
            if position in self.ends:
                constant = constant + self.ends[position].lower(functions, query.owner)
                continue
            if trail is not None and (position in self.relaxations or position in self.curves):
                trail.behind[position] = functions.whole(self.network.shapes[position]).coefficients
            error = error + self._error(position, functions, query)
            parts, added = self._substitute(position, functions, query)
            constant = constant + added
            for source, part in zip(self.network.graph.producer(position).inputs, parts, strict=True):
                known = pending.get(source)
                pending[source] = part if known is None else known.plus(part, self.network.shapes[source])
        zero = torch.zeros(len(query), dtype=self._sums_in, device=query.functions.coefficients.device)
        if trail is not None:
            trail.constant = (zero + constant).detach()
        if 0 in pending and trail is not None:
            pending[0] = pending[0].whole(self.network.shapes[0])
            trail.on_input = pending[0].coefficients
        if 0 in pending and (trail is None or not trail.is_all):
            constant = constant + self._smallest_on_box(pending[0], query.owner)
        return LowerBound(zero + constant, None if self.errors is None else zero + error + self._underflow(query.owner))

    @property
    def _sums_in(self) -> torch.dtype:
        """The precision of long sums of constants: float64 where the bound shall be a proof."""
        return self.network.box.lower.dtype if self.errors is None else torch.float64

    def _error(self, position: int, functions: LinearFunctions, query: BoundQuery) -> Tensor | float:
        """|coefficients| · error, and |multipliers| · error: what rounding at this value may add to the bound."""
        if self.errors is None:
            return 0.0
        error: Tensor | float = 0.0
        if position in self.errors.errors:
            error = cost_of_errors(functions.coefficients, self.errors.errors[position], query.owner)
        if query.multipliers and position in query.multipliers and position in self.errors.splits:
            error = error + cost_of_errors(query.multipliers[position], self.errors.splits[position], query.owner)
        return error

    def _underflow(self, owner: Tensor | None) -> Tensor:
        assert self.errors is not None
        return self.errors.underflow if owner is None else self.errors.underflow[owner]

    def _substitute(
        self, position: int, functions: LinearFunctions, query: BoundQuery
    ) -> tuple[list[LinearFunctions], Tensor | float]:
        """Functions of one value as functions of the inputs of its operation, and the constants that this adds."""
        network = self.network
        node = network.graph.producer(position)
        operation, sources = node.operation, [network.shapes[source] for source in node.inputs]
        if isinstance(operation, ReLU):
            return _through_relu(position, functions, query, self.relaxations[position], self.errors is not None)
        if isinstance(operation, SShaped):
            return self._through_curves(position, functions, query)
        if functions.patch is not None and isinstance(operation, Convolution) and operation.groups == 1:
            part = through_convolution_on_patches(functions, operation, sources[0], network.matrices)
            return [part], operation.constant(functions.coefficients, self._sums_in)
        if functions.patch is not None and isinstance(operation, Scale):
            return through_scale_on_patches(functions, operation, sources[0], self._sums_in)
        whole = functions.whole(network.shapes[position])
        if isinstance(operation, MaxPool):
            return through_maximum(whole, query.owner, operation, network.bounds[position], self._sums_in)
        if isinstance(functions, SingleNeurons) and functions.is_of_vector and isinstance(operation, Dense):
            parts = [functions.rows_of(operation.weight)]
        else:
            parts = operation.backward(whole.coefficients, sources)
        return [LinearFunctions(part) for part in parts], operation.constant(whole.coefficients, self._sums_in)

    def _through_curves(
        self, position: int, functions: LinearFunctions, query: BoundQuery
    ) -> tuple[list[LinearFunctions], Tensor]:
        """Each coefficient takes the line that it needs around its sigmoid or tanh."""
        lines, coefficients = self.curves[position], functions.coefficients
        if query.slopes is None or lines.movable is None:
            line = lines.needed(functions, query.owner)
        else:
            share = query.slopes.shares(position, functions, query.owner, lines.movable)
            line = lines.movable.lines(functions, query.owner, share)
        added = (coefficients * line.shift).flatten(1).sum(1, dtype=self._sums_in)
        carried = coefficients * line.slope
        if query.multipliers and position in query.multipliers:
            multipliers, bounds = query.multipliers[position], self.network.bounds[position]
            added = added + held(multipliers, bounds, query.owner)
            if self.errors is not None:
                added = added - lost_by_cancelling(carried, multipliers, bounds, query.owner)
            carried = carried - multipliers
        return [functions.with_coefficients(carried)], added

    def _smallest_on_box(self, functions: LinearFunctions, owner: Tensor | None) -> Tensor:
        """The minimum of functions of the input over the boxes: coefficients · centre − |coefficients| · half width."""
        coefficients = functions.coefficients
        centre, half = functions.gather_all(self._centre_and_half_width, owner)
        least = torch.addcmul(coefficients * centre, coefficients.abs(), half, value=-1)
        return least.sum(tuple(range(1, least.dim())), dtype=self._sums_in)

    @cached_property
    def _centre_and_half_width(self) -> WindowedLayers:
        """The boxes by their centres and half widths, with room for rounding where the bound shall be a proof."""
        box = self.network.box
        half_width = (box.upper - box.lower) / 2
        if self.errors is not None:
            half_width = half_width + input_room(box)
        return WindowedLayers([(box.upper + box.lower) / 2, half_width])


def _through_relu(
    position: int, functions: LinearFunctions, query: BoundQuery, lines: Relaxation, proof: bool
) -> tuple[list[LinearFunctions], Tensor]:
    """Positive coefficients take the lower line, negative ones the upper line: a lower bound of A · r(z)."""
    if query.slopes is None and query.multipliers is None and functions.patch is None:
        few = lines.unstable_columns(query.owner)
        if few is not None:
            return through_few_unstable(functions, query.owner, lines, few, proof)
    owner, runs = query.owner, None
    if query.slopes is None and not torch.is_grad_enabled():
        runs = functions.gather_runs(lines.drawn, owner)
    if runs is None:
        coefficients, added = _behind_relu(position, functions, query, lines, proof)
    else:
        coefficients, added = through_relu_in_runs(functions.coefficients, runs, proof)
    if query.multipliers and position in query.multipliers:
        coefficients = coefficients - query.multipliers[position]  # the split's term −β·sign·z
    return [functions.with_coefficients(coefficients)], added


def _behind_relu(
    position: int, functions: LinearFunctions, query: BoundQuery, lines: Relaxation, proof: bool
) -> tuple[Tensor, Tensor]:
    """Coefficients behind a ReLU, and what its upper lines add."""
    owner, negative = query.owner, functions.coefficients.clamp_max(0)
    if query.slopes is None:
        lower_slope, difference, shift = functions.gather_all(lines.drawn, owner)
    else:
        lower_slope = query.slopes.at(position, functions, owner, lines)
        upper_slope, shift = functions.gather_all(lines.upper_lines, owner)
        difference = upper_slope - lower_slope
    above = negative * shift
    added = sum_of_negatives(above) if proof else above.flatten(1).sum(1)
    return torch.addcmul(functions.coefficients * lower_slope, negative, difference), added  # A⁺·lower + A⁻·upper
