"""Rigorous rounding errors of a backward pass, and of the network that it speaks of.

Two kinds of rounding stand between a computed bound and a proof:

- The **network**, run in floating point, computes ẑ = W·x̂ + b + e at each layer with |e| ≤ γ_n·(|W||x̂| + |b|).
- The **pass** computes coefficients B̂ = Â·W + δ with |δ| ≤ γ_m·|Â||W|, so that Â·z = B̂·x + Â·b − δ·x.

Both cost the bound at most |Â| · error of the layer, with the pass's own coefficients Â there and

    error = (γ_n + γ_m) · (|W| · largest |x| + |b|).

So a pass subtracts Σ |Â|·error over the layers that it meets. This holds for sums in any order, with or without fused
multiply-add. Exact arithmetic is the case e = 0: for it, γ_n is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Interval, Shape
from steadynet.graph.rounding import (
    LONG_SUM,
    LONGEST_SUM,
    OWN_ROUNDING,
    Execution,
    Rounding,
    execution_error,
    gamma,
    underflow_unit,
    unit_roundoff,
)

_SLOPES_AND_SPLITS = 8  # roundings of a coefficient at a ReLU: slopes, their difference, products, sum, multiplier


@dataclass(frozen=True)
class ValueRounding:
    """What rounding may do at one value of the graph, for every property.

    Attributes:
        size: (properties, channels) or (properties, \\*shape), the size of the sums that the value is computed by.
        terms: how many roundings a number of the value sees when the network is run.
        transposed_terms: how many roundings a coefficient sees when a pass goes back through the operation.
        constants: how many roundings the constants of the operation saw.
        numbers: how many numbers the value has.
        largest_inputs: (properties,), the sum of the operation's inputs at their largest: underflow scales with it.
    """

    size: Tensor
    terms: int
    transposed_terms: int
    constants: int
    numbers: int
    largest_inputs: Tensor

    def of(self, rows: Tensor) -> ValueRounding:
        """The same for some of the properties."""
        return replace(self, size=self.size[rows], largest_inputs=self.largest_inputs[rows])


@dataclass(frozen=True)
class NetworkRounding:
    """The rounding of every value of a network, over the boxes of some properties.

    Attributes:
        execution: the execution of the network that bounds shall hold for.
        values: per position in the graph; a position that is missing is not rounded.
    """

    execution: Execution
    values: Mapping[int, ValueRounding]

    def of_properties(self, rows: Tensor) -> NetworkRounding:
        """The same for some of the properties."""
        return replace(self, values={position: value.of(rows) for position, value in self.values.items()})

    def converted(self, convert: Callable[[Tensor], Tensor]) -> NetworkRounding:
        """The same in another precision or on another device."""
        values = {
            position: replace(value, size=convert(value.size), largest_inputs=convert(value.largest_inputs))
            for position, value in self.values.items()
        }
        return replace(self, values=values)

    def widened(self, value: Interval, rounding: Rounding) -> Interval:
        """An interval that an operation computed, with room for its rounding and for that of the network."""
        dtype = value.lower.dtype
        own = gamma(rounding.terms + _SLOPES_AND_SPLITS, dtype) * OWN_ROUNDING
        room = (
            own * rounding.size + 2 * rounding.terms * underflow_unit(dtype) + execution_error(rounding, self.execution)
        )
        return Interval(value.lower - room, value.upper + room)

    def errors_of_pass(self, dtype: torch.dtype) -> PassErrors:
        """What a backward pass in this precision has to subtract."""
        errors, underflow = {}, torch.zeros((), dtype=torch.float64, device="cpu")
        longest = 2 * len(self.values) + max((value.numbers for value in self.values.values()), default=0)
        summed = longest * unit_roundoff(torch.float64) if longest < LONGEST_SUM else torch.inf
        for position, value in self.values.items():
            size = value.size.double()
            sums = Rounding(size, value.terms, value.transposed_terms, value.constants)
            executed = execution_error(sums, self.execution)
            relative = gamma(value.transposed_terms, dtype) + summed
            errors[position] = (relative * size + executed) * OWN_ROUNDING
            per_number = (value.transposed_terms + 2) * underflow_unit(dtype)
            underflow = underflow.to(size.device) + per_number * (value.largest_inputs.double() + value.numbers)
        return PassErrors(errors, underflow)


@dataclass(frozen=True)
class PassErrors:
    """What a backward pass subtracts from its bound.

    Attributes:
        errors: per position, error per unit of coefficient: (properties, channels) or (properties, \\*shape).
        underflow: (properties,) or (), what underflow may take from all coefficients together.
    """

    errors: Mapping[int, Tensor]
    underflow: Tensor


def input_room(box: Interval) -> Tensor:
    """By how much a box is widened so that its minimum, computed by centre and half width, is a lower bound."""
    return (8 * unit_roundoff(box.lower.dtype) + LONG_SUM) * box.largest()


class RoundingRecorder:
    """Collects the rounding of every value while bounds are propagated through a graph."""

    def __init__(self, graph: Graph, execution: Execution) -> None:
        self.rounding = NetworkRounding(execution, {})
        self._uses = Counter(source for node in graph.nodes for source in node.inputs)
        self._before_relu = {graph.source(relu) for relu in graph.relus}

    def record(self, position: int, node: Node, inputs: list[Interval], value: Interval, shape: Shape) -> Interval:
        """Note how an operation rounds; returns its interval with room for that."""
        largest = [known.largest() for known in inputs]
        rounding = node.operation.rounding(*largest)
        if rounding is not None:
            value = self.rounding.widened(value, rounding)
        adjusted = position in self._before_relu or self._uses[position] > 1  # coefficients are computed here, too
        if rounding is None and not adjusted:
            return value
        size = value.largest() if rounding is None else rounding.size
        transposed = (1 if rounding is None else rounding.transposed_terms) + self._uses[position]
        entry = ValueRounding(
            _per_channel(size),
            0 if rounding is None else rounding.terms,
            transposed + _SLOPES_AND_SPLITS,
            0 if rounding is None else rounding.constants,
            torch.Size(shape).numel(),
            torch.stack([known.flatten(1).sum(1, dtype=torch.float64) for known in largest]).sum(0),
        )
        self.rounding = replace(self.rounding, values={**self.rounding.values, position: entry})
        return value


def _per_channel(size: Tensor) -> Tensor:
    """The size of a feature map by its channels: the largest of all places. Other values stay as they are."""
    return size.amax((2, 3)) if size.dim() == 4 else size
