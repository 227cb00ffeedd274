"""A smaller form of a network over one box: every stable ReLU is linear there, and is substituted away.

What remains are the unstable ReLUs. The input of each is a linear function of the network's input and of the unstable
ReLUs before it, so one matrix per layer says everything that a search over their signs needs. The more stable a network
is, the smaller the matrices are.

The matrices are rounded, so bounds of the condensed network are no proofs by themselves. They find slopes and
multipliers; a pass over the whole network with the same slopes and multipliers is the proof. Or else the rounding of
every row is counted while it is computed (:class:`RowErrors`), for :mod:`condensed_proof`.

All values are stored in columns, one per subproblem: (neurons, subproblems).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.extraction import Extraction, RowErrors, Rows
from steadynet.bounds.relaxation import Relaxation
from steadynet.bounds.sparse import sparse_forms
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
        forms = sparse_forms(dense, SPARSE) if quick else None
        return cls(dense, dense.t().contiguous()) if forms is None else cls(*forms)

    @property
    def entries(self) -> int:
        """How many numbers it holds."""
        return self.matrix.numel() if self.matrix.layout == torch.strided else self.matrix.values().numel()

    @property
    def longest_column(self) -> int:
        """How many entries of one column are not zero, at most."""
        if self.transposed.layout == torch.strided:
            return len(self.matrix)
        return int(self.transposed.crow_indices().diff().max()) if self.entries else 0

    def dense(self) -> Tensor:
        """The matrix with its zeros."""
        return self.matrix if self.matrix.layout == torch.strided else self.matrix.to_dense()


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
        errors: of the rows of all neurons, and of the margins; None if nobody asked for proofs.
    """

    whole: BoundedNetwork
    layers: tuple[CondensedLayer, ...]
    margins: Tensor
    constants: Tensor
    bounds: Interval
    lines: Relaxation
    floor: Tensor
    box: Interval
    errors: tuple[RowErrors, RowErrors] | None = None

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

    @cached_property
    def is_leaky(self) -> bool:
        """Whether a ReLU has a slope of its own below zero."""
        return bool((self.floor > 0).any())

    def is_finite(self) -> bool:
        """Whether all of it is a number: weights of extreme sizes may overflow."""
        constants = [self.constants, *(layer.constant for layer in self.layers)]
        return bool(self.margins.isfinite().all()) and all(bool(part.isfinite().all()) for part in constants)


def condensed_size(whole: BoundedNetwork) -> int:
    """How many entries the matrices of a condensed network would have, if none were zero."""
    return condensed_sizes(whole)[0]


def condensed_sizes(bounded: BoundedNetwork) -> list[int]:
    """The same per property of a network over several boxes."""
    before = torch.full((len(bounded.box.lower),), bounded.box.lower[0].numel(), device=bounded.box.lower.device)
    entries = torch.zeros_like(before)
    for known in bounded.relus():
        unstable = known.unstable().flatten(1).sum(1)
        entries, before = entries + unstable * before, before + unstable
    return [int(number) for number in entries.tolist()]


def condense(
    whole: BoundedNetwork,
    margins: Tensor,
    memory: int,
    out_of_time: Callable[[], bool] = lambda: False,
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
    return condense_each([whole], whole, margins[None], memory, out_of_time)[0]


def condense_each(
    wholes: Sequence[BoundedNetwork],
    together: BoundedNetwork,
    margins: Tensor,
    memory: int,
    out_of_time: Callable[[], bool] = lambda: False,
    proofs: bool = False,
) -> list[CondensedNetwork]:
    """Condense the network over the box of each of several properties, which takes less time than one by one.

    Args:
        wholes: the network over the box of each property; it has no maxima.
        together: the network over all of these boxes.
        margins: (properties, margins, outputs), the margins as coefficients of the output.
        memory: bytes that a backward pass may take.
        out_of_time: is asked between backward passes.
        proofs: whether to count the rounding of every row, so that bounds can be proofs.

    Raises:
        OutOfTimeError: ``out_of_time`` said yes.
    """
    extraction = Extraction(together, memory, out_of_time, proofs)
    layers = [(relu, extraction.neurons(relu)) for relu in together.graph.relus]
    found = extraction.margins(margins)
    return [
        _joined(whole, [(relu, rows[number]) for relu, rows in layers], found[number])
        for number, whole in enumerate(wholes)
    ]


def _joined(whole: BoundedNetwork, found: Sequence[tuple[int, Rows]], margins: Rows) -> CondensedNetwork:
    """The condensed network of one property from its rows."""
    layers: list[CondensedLayer] = []
    none = whole.box.lower.new_zeros(0, 1)
    bounds, floors = [Interval(none, none)], [none]
    lines = [Relaxation(none, none, none)]
    first = 0
    for relu, rows in found:
        operation, known = whole.graph.producer(relu).operation, whole.bounds[relu]
        assert isinstance(operation, ReLU)
        elements = known.unstable().flatten().nonzero().flatten()
        if not len(elements):
            continue
        numbers, shape = slice(first, first + len(elements)), tuple(known.lower.shape[1:])
        layers.append(CondensedLayer(relu, shape, elements, Matrix.of(rows.matrix), rows.constant, numbers))
        bounds.append(Interval(*(side.flatten()[elements, None] for side in known)))
        floors.append(torch.full_like(bounds[-1].lower, operation.slope))
        lines.append(Relaxation.crown(bounds[-1], operation.slope))
        first += len(elements)
    joined = Relaxation(
        torch.cat([line.lower_slope for line in lines]),
        torch.cat([line.upper_slope for line in lines]),
        torch.cat([line.upper_shift for line in lines]),
    )
    every = Interval(torch.cat([part.lower for part in bounds]), torch.cat([part.upper for part in bounds]))
    box, errors = Interval(*(side.flatten()[:, None] for side in whole.box)), None
    if margins.errors is not None:
        of_neurons = [rows.errors for _, rows in found if rows.errors is not None]
        errors = RowErrors.joined([RowErrors.none(none.device), *of_neurons]), margins.errors
    return CondensedNetwork(
        whole, tuple(layers), margins.matrix.t().contiguous(), margins.constant, every, joined, torch.cat(floors), box,
        errors,
    )  # fmt: skip
