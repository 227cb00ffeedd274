"""Rigorous rounding errors of a backward pass, and of the network that it speaks of.

Two kinds of rounding stand between a computed bound and a proof:

- The **network**, run in floating point, computes ẑ = W·x̂ + b + e at each layer with |e| ≤ γ_n·(|W||x̂| + |b|).
- The **pass** computes coefficients B̂ = Â·W + δ with |δ| ≤ γ_m·|Â||W|, so that Â·z = B̂·x + Â·b − δ·x.

Both cost the bound at most |Â| · error of the layer, with the pass's own coefficients Â there and

    error = (γ_n + γ_m) · (|W| · largest |x| + |b|).

So a pass subtracts Σ |Â|·error over the layers that it meets. This holds for sums in any order, with or without fused
multiply-add. Exact arithmetic is the case e = 0: for it, γ_n is left out.

Where k operations read one value, their k parts of its coefficients are added up. A sum may cancel, so its k − 1
roundings are counted in the γ_m of each operation that reads, where the parts are still seen by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Convolution, Dense, Interval, Operation, ReLU
from steadynet.graph.rearrangements import Permute, Reshape
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
from steadynet.graph.s_shaped import SShaped

ZERO_INPUTS = True  # whether sums that a network adds up are as short as its inputs that may be other than zero
_SLOPES_AND_SPLITS = 8  # roundings of a coefficient at a ReLU: slopes, their difference, products, sum, multiplier


@dataclass(frozen=True)
class ValueRounding:
    """What rounding may do at one value of the graph, for every property.

    Attributes:
        sums: the sums that the value is computed by, and those of a pass that goes back through its operation. Their
            size is (properties, channels) or (properties, \\*shape).
        inputs: (properties,), the operation's inputs at their largest, added up: an underflowing weight takes a share.
        split: like the size, the ReLU's input at its largest where a split's multiplier is rounded by itself; None
            where no other operation reads that input, so that the error is one of the coefficients there.
    """

    sums: Rounding
    inputs: Tensor
    split: Tensor | None = None

    def converted(self, convert: Callable[[Tensor], Tensor]) -> ValueRounding:
        """The same with other tensors: for some properties, in another precision, or on another device."""
        split, executed = (None if one is None else convert(one) for one in (self.split, self.sums.executed))
        sums = replace(self.sums, size=convert(self.sums.size), executed=executed)
        return ValueRounding(sums, convert(self.inputs), split)


@dataclass(frozen=True)
class NetworkRounding:
    """The rounding of every value of a network, over the boxes of some properties.

    Attributes:
        execution: the execution of the network that bounds shall hold for.
        underflow: (properties,), how many units of underflow a pass may meet.
        longest: the longest sum in float64 of a pass.
        values: per position in the graph; a position that is missing is not rounded.
        known_errors: a cache of what passes subtract, with the values and settings that it was computed for.
    """

    execution: Execution
    underflow: Tensor
    longest: int
    values: Mapping[int, ValueRounding] = field(default_factory=dict)
    known_errors: dict[int, tuple[ValueRounding, object, Tensor, Tensor | None]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def of_properties(self, rows: Tensor) -> NetworkRounding:
        """The same for some of the properties."""
        return self.converted(lambda tensor: tensor[rows])

    def converted(self, convert: Callable[[Tensor], Tensor]) -> NetworkRounding:
        """The same with other tensors: for some properties, in another precision, or on another device."""
        values = {position: value.converted(convert) for position, value in self.values.items()}
        return replace(self, underflow=convert(self.underflow), values=values)

    def widened(self, value: Interval, sums: Rounding, inputs: Tensor) -> Interval:
        """An interval that an operation computed, with room for its rounding and for that of the network."""
        dtype = value.lower.dtype
        own = gamma(sums.terms + _SLOPES_AND_SPLITS, dtype) * OWN_ROUNDING
        underflow = 2 * (sums.terms + 1) * underflow_unit(dtype)
        room = own * sums.size + underflow + execution_error(sums, self.execution, inputs)
        return Interval(value.lower - room, value.upper + room)

    def errors_of_pass(self, dtype: torch.dtype) -> PassErrors:
        """What a backward pass in this precision has to subtract."""
        summed = self.longest * unit_roundoff(torch.float64) if self.longest < LONGEST_SUM else torch.inf
        errors, splits = {}, {}
        for position, value in self.values.items():
            known = self.known_errors.get(position)
            if known is None or known[0] is not value or known[1] != (self.execution, dtype, summed):
                settings = self.execution, dtype, summed
                known = self.known_errors[position] = value, settings, *self._errors_at(value, dtype, summed)
            errors[position] = known[2]
            if known[3] is not None:
                splits[position] = known[3]
        return PassErrors(errors, splits, underflow_unit(dtype) * self.underflow.double())

    def _errors_at(self, value: ValueRounding, dtype: torch.dtype, summed: float) -> tuple[Tensor, Tensor | None]:
        """Error per unit of coefficient at one value, and per unit of a split's multiplier."""
        sums = replace(value.sums, size=value.sums.size.double())
        relative = gamma(sums.transposed_terms, dtype) + summed
        error = (relative * sums.size + execution_error(sums, self.execution, value.inputs)) * OWN_ROUNDING
        return error, None if value.split is None else relative * OWN_ROUNDING * value.split.double()


@dataclass(frozen=True)
class PassErrors:
    """What a backward pass subtracts from its bound.

    Attributes:
        errors: per position, error per unit of coefficient: (properties, channels) or (properties, \\*shape).
        splits: per position of a ReLU, error per unit of a split's multiplier, in the same shapes.
        underflow: (properties,), what underflow may take from all coefficients together.
    """

    errors: Mapping[int, Tensor]
    splits: Mapping[int, Tensor]
    underflow: Tensor

    def of_functions(self, owner: Tensor) -> PassErrors:
        """The same with one row per function, (n,) being the property of each."""
        errors, splits = ({at: rows[owner] for at, rows in part.items()} for part in (self.errors, self.splits))
        return PassErrors(errors, splits, self.underflow[owner])


def input_room(box: Interval) -> Tensor:
    """By how much a box is widened so that its minimum, computed by centre and half width, is a lower bound."""
    dtype = box.lower.dtype
    return (8 * unit_roundoff(dtype) + LONG_SUM) * box.largest() + 8 * underflow_unit(dtype)


def sum_of_negatives(terms: Tensor) -> Tensor:
    """At most the sum of each function's terms, none of which is positive: (n,) in float64.

    Adding up float32 numbers in float64 takes four times as long as in float32. So each channel of a feature map is
    added up in float32 first. As no terms cancel, the rounding of that is a share of the sum.
    """
    if terms.dim() != 4:
        return terms.flatten(1).sum(1, dtype=torch.float64)
    return sum_of_negative_channels(terms.sum((2, 3)), terms.shape[2:].numel())


def sum_of_negative_channels(channels: Tensor, places: int) -> Tensor:
    """The same from the sums of each channel (n, channels), of so many terms each."""
    sums = channels.double() * (1 + 2 * gamma(places, channels.dtype))
    return sums.sum(1) - channels.shape[1] * places * underflow_unit(channels.dtype)


class RoundingRecorder:
    """Collects the rounding of every value while bounds are propagated through a graph."""

    def __init__(self, graph: Graph, execution: Execution, box: Interval) -> None:
        self._uses = Counter(source for node in graph.nodes for source in node.inputs)
        self._before_activation = {graph.source(position) for position in graph.activations}
        # A number below the smallest normal one has few digits or none: what is added makes up for that.
        self._least = underflow_unit(execution.dtype) / unit_roundoff(execution.dtype)
        self._totals = [_total(box)]
        longest = 2 * len(graph.nodes) + box.lower[0].numel()
        self.rounding = NetworkRounding(execution, torch.zeros_like(self._totals[0]), longest)

    def record(self, position: int, node: Node, inputs: list[Interval], value: Interval) -> Interval:
        """Note how an operation rounds; returns its interval with room for that."""
        additions = max(self._uses[source] for source in node.inputs) - 1  # of the parts of a source's coefficients
        if _only_moves(node.operation) and not additions and position not in self._before_activation:
            return self._record_moved(position, node.inputs[0], value)
        largest = [known.largest() + self._least for known in inputs]
        read = sum((self._totals[source] for source in node.inputs[1:]), self._totals[node.inputs[0]])
        sums = self._sums(node.operation, largest)
        if sums is not None:
            sums = replace(sums, executed=_executed(node.operation, sums.terms, inputs))
            value = self.rounding.widened(value, sums, read)
        self._totals.append(_total(value))
        transposed = (1 if sums is None else sums.transposed_terms) + additions + _SLOPES_AND_SPLITS
        underflow = self.rounding.underflow + (transposed + 4) * (read + self._totals[position])
        if sums is not None:  # an underflow where coefficients are added up counts for the constants of the operation
            underflow = underflow + sums.size.flatten(1).sum(1, dtype=torch.float64)
        longest = max(self.rounding.longest, 2 * len(self._uses) + value.lower[0].numel())
        values = dict(self.rounding.values)
        if sums is not None or additions or position in self._before_activation:
            size = _seen_by_a_pass(node.operation, sums, largest, value, additions)
            terms, constants = (0, 0) if sums is None else (sums.terms, sums.constants)
            executed = None if sums is None else sums.executed
            split = _per_channel(largest[0]) if isinstance(node.operation, (ReLU, SShaped)) and additions else None
            rounded = Rounding(_per_channel(size), terms, transposed, constants, executed)
            values[position] = ValueRounding(rounded, read, split)
        self.rounding = replace(self.rounding, underflow=underflow, longest=longest, values=values)
        return value

    def _record_moved(self, position: int, source: int, value: Interval) -> Interval:
        """Note a value that holds numbers of its source, or zeros instead: only underflow and long sums count."""
        total = self._totals[source]
        self._totals.append(total)  # no number is larger than where it comes from
        underflow = self.rounding.underflow + 2 * (1 + _SLOPES_AND_SPLITS + 4) * total
        longest = max(self.rounding.longest, 2 * len(self._uses) + value.lower.shape[1:].numel())
        self.rounding = replace(self.rounding, underflow=underflow, longest=longest)
        return value

    def _sums(self, operation: Operation, largest: list[Tensor]) -> Rounding | None:
        """What an operation adds up; infinite where the sums may overflow, or are too long for any bound."""
        sums = operation.rounding(*largest)
        if sums is None:
            return None
        own = gamma(sums.terms + _SLOPES_AND_SPLITS, sums.size.dtype)  # the size is rounded itself
        size = sums.size / (1 - own) if own < 0.5 else torch.full_like(sums.size, torch.inf)
        overflow = torch.finfo(self.rounding.execution.dtype).max / 4
        return replace(sums, size=torch.where(size < overflow, size, torch.inf))


def _executed(operation: Operation, terms: int, inputs: list[Interval]) -> Tensor | None:
    """How many of an operation's roundings may happen when the network is run, (properties,): see :class:`Rounding`.

    None where all may, and where the operation is not one of the network's own layers, but computed from several.
    """
    if not ZERO_INPUTS or not isinstance(operation, (Convolution, Dense)) or operation.roundings:
        return None
    there = (inputs[0].lower != 0) | (inputs[0].upper != 0)
    return terms - operation.weight.shape[1:].numel() + operation.read(there).double()


def _only_moves(operation: Operation) -> bool:
    """Whether each number of the value is a number of the source, at another place at most, or zero instead."""
    return isinstance(operation, (Reshape, Permute)) or (isinstance(operation, ReLU) and operation.slope == 0)


def _seen_by_a_pass(
    operation: Operation, sums: Rounding | None, largest: list[Tensor], value: Interval, additions: int
) -> Tensor:
    """|coefficients| · |inputs| for each unit of coefficient of the value: what roundings of a pass are relative to."""
    if isinstance(operation, ReLU) and (sums is None or additions):
        return largest[0]
    if isinstance(operation, SShaped) and sums is not None and additions:  # its lines have slopes up to 1
        return torch.maximum(sums.size, largest[0])
    return value.largest() if sums is None else sums.size


def _total(value: Interval) -> Tensor:
    """(properties,), all numbers of a value at their largest, and 1 for each."""
    return value.largest().flatten(1).sum(1, dtype=torch.float64) + value.lower[0].numel()


def _per_channel(size: Tensor) -> Tensor:
    """The size of a feature map by its channels: the largest of all places. Other values stay as they are."""
    return size.amax((2, 3)) if size.dim() == 4 else size


def cost_of_errors(coefficients: Tensor, errors: Tensor, owner: Tensor | None) -> Tensor:
    """Σ |coefficients| · error per function, (n,); ``errors`` may hold the largest error of each channel."""
    coefficients = coefficients.detach()
    if errors.dim() == 2 and coefficients.dim() == 4:
        coefficients = size_per_channel(coefficients)
    if owner is not None and len(errors) > 1:
        errors = errors.index_select(0, owner)
    return (coefficients.abs() * errors).flatten(1).sum(1)


def size_per_channel(coefficients: Tensor) -> Tensor:
    """At least Σ |coefficients| of each channel, in float64: a quick sum, and what rounding may have taken off it."""
    terms, dtype = coefficients.shape[2:].numel(), coefficients.dtype
    computed = coefficients.abs().sum((2, 3)).double()  # at least (1 − γ) times the exact sum
    return (computed + terms * underflow_unit(dtype)) * (1 + 4 * gamma(terms, dtype))
