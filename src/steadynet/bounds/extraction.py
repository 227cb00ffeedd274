"""Backward passes in which a stable ReLU is linear and an unstable one is an input of its own.

They give the rows of condensed networks, of several properties at once: a pass over few functions takes hardly less
time than one over some more. ReLUs that are never active in any of the boxes are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork, RelaxedNetwork
from steadynet.bounds.crown import CACHED_COEFFICIENTS, OutOfTimeError, functions_at_once
from steadynet.bounds.linear_functions import LinearFunctions, single_neurons
from steadynet.bounds.queries import BoundQuery, Trail
from steadynet.bounds.relaxation import Relaxation
from steadynet.bounds.thinning import thinned
from steadynet.graph.operations import Interval, ReLU


@dataclass(frozen=True)
class RowErrors:
    """How far functions may be from their rows of a condensed network, when the network is run; all in float64.

    Attributes:
        constants: (n,), what is added to the rows, more precisely than in the network.
        errors: (n,), the largest difference between a function and its row, for all inputs of the box.
        sizes: (n,), Σ |entry| · |what it stands for| + |constant| of each row, but for the rounding of this sum.
    """

    constants: Tensor
    errors: Tensor
    sizes: Tensor

    @classmethod
    def joined(cls, parts: Sequence[RowErrors]) -> RowErrors:
        """Those of several groups of rows."""
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in ("constants", "errors", "sizes")))

    @classmethod
    def none(cls, device: torch.device) -> RowErrors:
        """Those of no rows."""
        return cls(*torch.zeros(3, 0, dtype=torch.float64, device=device))


@dataclass(frozen=True)
class Rows:
    """Functions of the input of one property and of its unstable ReLUs so far.

    Attributes:
        matrix: (n, inputs + unstable ReLUs before).
        constant: (n,), what is added.
        errors: how far they may be off; None if nobody asked for proofs.
    """

    matrix: Tensor
    constant: Tensor
    errors: RowErrors | None

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Several groups of rows of one property."""
        if len(parts) == 1:
            return parts[0]
        errors = [part.errors for part in parts if part.errors is not None]
        return cls(
            torch.cat([part.matrix for part in parts]),
            torch.cat([part.constant for part in parts]),
            RowErrors.joined(errors) if errors else None,
        )


class Extraction:
    """The rows of condensed networks, layer by layer.

    Args:
        bounded: the network over the boxes of some properties; it has no maxima.
        memory: bytes that a backward pass may take.
        out_of_time: is asked between backward passes, which then end with an ``OutOfTimeError``.
        proofs: whether to count rounding.
    """

    def __init__(
        self, bounded: BoundedNetwork, memory: int, out_of_time: Callable[[], bool], proofs: bool = False
    ) -> None:
        zero, thin = torch.zeros_like(bounded.box.lower), thinned(bounded)
        errors = thin.rounding.errors_of_pass(zero.dtype) if proofs and thin.rounding is not None else None
        self.network = replace(thin, box=Interval(zero, zero), rounding=None)
        self.memory, self.out_of_time = memory, out_of_time
        self.before: list[tuple[int, list[Tensor]]] = []  # the layers so far, with the unstable ones of each property
        self.largest = [[each] for each in bounded.box.largest().flatten(1).double()]  # what columns stand for
        lines = {}
        for relu in thin.graph.relus:
            operation, known = thin.graph.producer(relu).operation, thin.bounds[relu]
            assert isinstance(operation, ReLU)
            inside = torch.where(known.unstable(), 0.0, torch.nan)  # bounds that are not numbers prove nothing
            slope = torch.where(known.lower >= 0, 1.0, torch.where(known.upper <= 0, operation.slope, inside))
            lines[relu] = Relaxation(slope, slope, torch.zeros_like(slope), operation.slope)
        self.relaxed = RelaxedNetwork(self.network, lines, errors)

    def neurons(self, relu: int) -> list[Rows]:
        """Per property, the inputs of the unstable ReLUs of a layer, which is then one of the layers before."""
        position, known = self.network.graph.source(relu), self.network.bounds[relu]
        shape, dtype, chosen = self.network.shapes[position], self.network.box.lower.dtype, known.unstable()
        found: list[list[Rows]] = [[] for _ in self.largest]
        places = chosen.nonzero()
        for some in places.split(self._at_once(position)) if len(places) else ():
            self._add(found, position, *single_neurons(some, shape, dtype))
        elements = [each.nonzero().flatten() for each in chosen.flatten(1)]
        self.before.append((relu, elements))
        for number, (here, largest) in enumerate(zip(elements, known.largest().flatten(1), strict=True)):
            self.largest[number].append(largest[here].double())  # at least that of the ReLU's output
        return [Rows.joined(parts) if parts else self._none(number) for number, parts in enumerate(found)]

    def margins(self, margins: Tensor) -> list[Rows]:
        """Per property, its margins; they are given as coefficients of the output, (properties, margins, outputs)."""
        functions, output = margins.flatten(0, 1), self.network.output
        owner = torch.arange(len(margins), device=margins.device).repeat_interleave(margins.shape[1])
        found: list[list[Rows]] = [[] for _ in self.largest]
        for some in torch.arange(len(owner), device=owner.device).split(self._at_once(output)):
            self._add(found, output, LinearFunctions(functions[some]), owner[some])
        return [Rows.joined(parts) for parts in found]

    def _at_once(self, position: int) -> int:
        """How many functions one pass takes back; their coefficients are wanted on whole layers."""
        widest = max([1, *(torch.Size(self.network.shapes[relu]).numel() for relu, _ in self.before)])
        return max(32, min(functions_at_once(self.network, position, self.memory), CACHED_COEFFICIENTS // widest))

    def _none(self, number: int) -> Rows:
        """No rows of a property."""
        width, box = sum(map(len, self.largest[number])), self.network.box.lower
        errors = None if self.relaxed.errors is None else RowErrors.none(box.device)
        return Rows(box.new_zeros(0, width), box.new_zeros(0), errors)

    def _add(self, found: list[list[Rows]], position: int, functions: LinearFunctions, owner: Tensor) -> None:
        """Take functions of a value back, and add their rows to those of their properties."""
        if self.out_of_time():
            raise OutOfTimeError
        trail = Trail(is_all=True)
        with torch.no_grad():
            bound = self.relaxed.lower(BoundQuery(position, functions, owner), trail)
        assert trail.constant is not None
        count, inputs = len(functions), self.network.box.lower[0].numel()
        on_input = trail.constant.new_zeros(count, inputs) if trail.on_input is None else trail.on_input.flatten(1)
        behind = {relu: trail.behind[relu].flatten(1) for relu, _ in self.before if relu in trail.behind}
        numbers, counts = owner.unique_consecutive(return_counts=True)
        start = 0
        for number, size in zip(numbers.tolist(), counts.tolist(), strict=True):
            rows = slice(start, start + size)
            parts = [on_input[rows]]
            for relu, elements in self.before:
                here = elements[number]
                none = on_input.new_zeros(size, len(here))
                parts.append(behind[relu][rows].index_select(1, here) if relu in behind else none)
            found[number].append(self._rows(number, torch.cat(parts, 1), trail.constant[rows], bound.error, rows))
            start = rows.stop

    def _rows(self, number: int, matrix: Tensor, constant: Tensor, errors: Tensor | None, rows: slice) -> Rows:
        """Some rows of one property, with their errors."""
        dtype = self.network.box.lower.dtype
        matrix = matrix.to(dtype)
        if errors is None or self.relaxed.errors is None:
            return Rows(matrix, constant.to(dtype), None)
        sizes = matrix.abs().double() @ torch.cat(self.largest[number]) + constant.abs()
        # underflow is counted twice, since it moves the constant, too
        error = errors[rows] + self.relaxed.errors.underflow[number]
        return Rows(matrix, constant.to(dtype), RowErrors(constant, error, sizes))
