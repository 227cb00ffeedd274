"""A smaller form of a network over one box: every stable ReLU is linear there, and is substituted away.

What remains are the unstable ReLUs. The input of each is a linear function of the network's input and of the unstable
ReLUs before it, so one matrix per layer says everything that a search over their signs needs. The more stable a network
is, the smaller the matrices are.

The matrices are rounded, so bounds of the condensed network are no proofs. They find slopes and multipliers; a pass
over the whole network with the same slopes and multipliers is the proof.

All values are stored in columns, one per subproblem: (neurons, subproblems).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork, BoundQuery, RelaxedNetwork, Trail
from steadynet.bounds.crown import OutOfTimeError, functions_at_once
from steadynet.bounds.linear_functions import LinearFunctions, single_neurons
from steadynet.bounds.relaxation import Relaxation
from steadynet.graph.operations import Interval, ReLU

SPARSE = 0.25  # share of non-zero entries below which a sparse product is faster


@dataclass(frozen=True)
class Matrix:
    """A matrix and its transpose, sparse where that is faster."""

    matrix: Tensor
    transposed: Tensor

    @classmethod
    def of(cls, dense: Tensor) -> Matrix:
        """Choose the form of a matrix."""
        quick = dense.device.type == "cpu" and torch.backends.mkl.is_available()
        if not quick or int(dense.count_nonzero()) >= SPARSE * dense.numel():
            return cls(dense, dense.t().contiguous())
        row, column = dense.nonzero(as_tuple=True)
        values, turned = dense[row, column], column.argsort(stable=True)
        return cls(
            _sparse(row, column, values, dense.shape),
            _sparse(column[turned], row[turned], values[turned], dense.t().shape),
        )

    @property
    def entries(self) -> int:
        """How many numbers it holds."""
        return self.matrix.numel() if self.matrix.layout == torch.strided else self.matrix.values().numel()

    def dense(self) -> Tensor:
        """The matrix with its zeros."""
        return self.matrix if self.matrix.layout == torch.strided else self.matrix.to_dense()


def _sparse(row: Tensor, column: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    """The matrix with these entries, which are in the order of its rows."""
    starts = torch.nn.functional.pad(torch.bincount(row, minlength=shape[0]).cumsum(0), (1, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that its sparse matrices are new
        return torch.sparse_csr_tensor(starts, column, values, tuple(shape), check_invariants=False)


class ChosenNeurons(Protocol):
    """Some neurons of a ReLU layer: a layer of a condensed network is one."""

    @property
    def position(self) -> int:
        """The ReLU's position in the network."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole layer."""

    @property
    def elements(self) -> Tensor:
        """The numbers of the neurons in the whole layer, (n,)."""

    @property
    def rows(self) -> slice:
        """Their numbers among the chosen neurons of all layers."""


@dataclass(frozen=True)
class CondensedLayer:
    """The unstable ReLUs of one layer.

    Attributes:
        position: the ReLU's position in the whole network.
        shape: the shape of the whole layer.
        elements: (n,), the numbers of the unstable neurons in the whole layer.
        matrix: (n, inputs + unstable neurons before), the ReLU inputs as functions of what comes before.
        constant: (n,), what is added to them.
        rows: its neurons among all unstable neurons.
    """

    position: int
    shape: tuple[int, ...]
    elements: Tensor
    matrix: Matrix
    constant: Tensor
    rows: slice


@dataclass(frozen=True)
class CondensedNetwork:
    """The unstable ReLUs of a network over one box, and its margins.

    Attributes:
        whole: the network over the box of one property.
        layers: the layers that have unstable ReLUs.
        margins: (inputs + unstable neurons, margins), the margins as functions of both.
        constants: (margins,), what is added to them.
        bounds: bounds of the input of every unstable ReLU, (neurons, 1).
        lines: the two lines of every unstable ReLU, (neurons, 1) each.
        floor: (neurons, 1), the ReLU's own slope below zero.
        box: the box, (inputs, 1).
    """

    whole: BoundedNetwork
    layers: tuple[CondensedLayer, ...]
    margins: Tensor
    constants: Tensor
    bounds: Interval
    lines: Relaxation
    floor: Tensor
    box: Interval

    @property
    def inputs(self) -> int:
        """How many inputs the network has."""
        return len(self.box.lower)

    @property
    def neurons(self) -> int:
        """How many unstable ReLUs there are."""
        return len(self.margins) - self.inputs

    @property
    def entries(self) -> int:
        """How many numbers its matrices hold."""
        return sum(layer.matrix.entries for layer in self.layers) + self.margins.numel()

    def is_finite(self) -> bool:
        """Whether all of it is a number: weights of extreme sizes may overflow."""
        constants = [self.constants, *(layer.constant for layer in self.layers)]
        return bool(self.margins.isfinite().all()) and all(bool(part.isfinite().all()) for part in constants)


def condensed_size(whole: BoundedNetwork) -> int:
    """How many entries the matrices of a condensed network would have, if none were zero."""
    entries, before = 0, whole.box.lower[0].numel()
    for relu in whole.graph.relus:
        unstable = int(whole.bounds[relu].unstable().sum())
        entries, before = entries + unstable * before, before + unstable
    return entries


def condense(
    whole: BoundedNetwork, margins: Tensor, memory: int, out_of_time: Callable[[], bool] = lambda: False
) -> CondensedNetwork:
    """Substitute the stable ReLUs of a network over one box.

    Args:
        whole: the network over the box of one property; it has no maxima.
        margins: (margins, outputs), the margins as coefficients of the output.
        memory: bytes that a backward pass may take.
        out_of_time: is asked between backward passes.

    Raises:
        OutOfTimeError: ``out_of_time`` said yes.
    """
    extraction = _Extraction(whole, memory, out_of_time)
    layers: list[CondensedLayer] = []
    none = margins.new_zeros(0, 1)
    bounds, floors = [Interval(none, none)], [none]
    lines = [Relaxation(none, none, none)]
    first = 0
    for relu in whole.graph.relus:
        operation, known = whole.graph.producer(relu).operation, whole.bounds[relu]
        assert isinstance(operation, ReLU)
        chosen = known.unstable()
        if not bool(chosen.any()):
            continue
        matrix, constant = extraction.neurons(whole.graph.source(relu), chosen, layers)
        elements = chosen.flatten().nonzero().flatten()
        rows = slice(first, first + len(elements))
        layers.append(CondensedLayer(relu, tuple(known.lower.shape[1:]), elements, Matrix.of(matrix), constant, rows))
        bounds.append(Interval(*(side.flatten()[elements, None] for side in known)))
        floors.append(torch.full_like(bounds[-1].lower, operation.slope))
        lines.append(Relaxation.crown(bounds[-1], operation.slope))
        first += len(elements)
    matrix, constants = extraction.functions(whole.output, LinearFunctions(margins), layers)
    joined = Relaxation(
        torch.cat([line.lower_slope for line in lines]),
        torch.cat([line.upper_slope for line in lines]),
        torch.cat([line.upper_shift for line in lines]),
    )
    every = Interval(torch.cat([part.lower for part in bounds]), torch.cat([part.upper for part in bounds]))
    box = Interval(*(side.flatten()[:, None] for side in whole.box))
    return CondensedNetwork(
        whole, tuple(layers), matrix.t().contiguous(), constants, every, joined, torch.cat(floors), box
    )


class _Extraction:
    """Backward passes in which a stable ReLU is linear and an unstable one is an input of its own."""

    def __init__(self, whole: BoundedNetwork, memory: int, out_of_time: Callable[[], bool]) -> None:
        zero = torch.zeros_like(whole.box.lower)
        self.network = replace(whole, box=Interval(zero, zero), rounding=None)
        self.memory, self.out_of_time = memory, out_of_time
        lines = {}
        for relu in whole.graph.relus:
            operation, known = whole.graph.producer(relu).operation, whole.bounds[relu]
            assert isinstance(operation, ReLU)
            slope = torch.where(known.lower >= 0, 1.0, torch.where(known.upper <= 0, operation.slope, 0.0))
            lines[relu] = Relaxation(slope, slope, torch.zeros_like(slope), operation.slope)
        self.relaxed = RelaxedNetwork(self.network, lines)

    def neurons(self, position: int, chosen: Tensor, before: Sequence[CondensedLayer]) -> tuple[Tensor, Tensor]:
        """Some neurons of a value as functions of the input and of the unstable ReLUs before it."""
        at_once = functions_at_once(self.network, position, self.memory)
        shape, dtype = self.network.shapes[position], self.network.box.lower.dtype
        found = [
            self.functions(position, single_neurons(some, shape, dtype)[0], before)
            for some in chosen.nonzero().split(at_once)
        ]
        return torch.cat([matrix for matrix, _ in found]), torch.cat([constant for _, constant in found])

    def functions(
        self, position: int, functions: LinearFunctions, before: Sequence[CondensedLayer]
    ) -> tuple[Tensor, Tensor]:
        """Linear functions of a value: (n, inputs + unstable neurons before), and their constants (n,)."""
        if self.out_of_time():
            raise OutOfTimeError
        trail, count = Trail(), len(functions)
        owner = torch.zeros(count, dtype=torch.long, device=functions.coefficients.device)
        with torch.no_grad():
            constant = self.relaxed.lower(BoundQuery(position, functions, owner), trail).value
        inputs = self.network.box.lower[0].numel()
        parts = [constant.new_zeros(count, inputs) if trail.on_input is None else trail.on_input.flatten(1)]
        for layer in before:
            behind = trail.behind.get(layer.position)
            none = constant.new_zeros(count, len(layer.elements))
            parts.append(none if behind is None else behind.flatten(1)[:, layer.elements])
        return torch.cat(parts, 1), constant
