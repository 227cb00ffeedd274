"""Compare a graph with an execution of the network, value by value.

A graph says of every operation how far an execution may lie from exact arithmetic: ẑ = operation(x̂) + e with
|e| ≤ error. Here the numbers that some program computed (PyTorch, ONNX Runtime) are held against this, each number by
itself. Where the program shows a value x̂, the next operation is judged from there. So errors do not pile up over the
layers, and a small output beside a large one is compared as precisely as it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution, execution_error, gamma

_SAFETY = 2.0  # so many times the error that the graph states
_OWN_ROUNDINGS = 8  # of the comparison itself, in float64


@dataclass(frozen=True)
class Deviation:
    """A value that no execution of the graph can have computed: the name of its layer, and what is wrong with it.

    ``overflows`` says that the value is not finite. Then the network may have been read right.
    """

    layer: str
    reason: str
    overflows: bool = False

    def __str__(self) -> str:
        return f"layer '{self.layer}' {self.reason}"


def first_deviation(
    graph: Graph, images: Tensor, computed: Mapping[int, Tensor], dtype: torch.dtype
) -> Deviation | None:
    """Find the first value that an execution of a graph cannot have computed.

    Args:
        graph: The graph.
        images: What the network was run on, (batch, *shape).
        computed: The values that the execution computed, by their positions in the graph, (batch, *shape). Values that
            it does not show are computed here, with room for their rounding.
        dtype: The precision of the execution.

    Returns:
        The first deviation; None if the graph explains every number.

    >>> from steadynet.graph.operations import Scale
    >>> graph = Graph((Node("twice", Scale(torch.tensor(2.0), torch.tensor(0.0)), (0,)),))
    >>> one, two = torch.tensor([[1.0]]), torch.tensor([[2.0]])
    >>> first_deviation(graph, one, {1: two}, torch.float32)
    >>> print(first_deviation(graph, one, {1: two + 1e-3}, torch.float32))
    layer 'twice' computes 2.001 instead of 2, and rounding explains 7.2e-07 only
    """
    execution = Execution(Arithmetic.FLOAT32, dtype)
    with torch.no_grad():
        exact = graph.converted(lambda tensor: tensor.detach().double())
        values = [_point(images)]
        for position, node in exact.numbered():
            value = _executed(node, [values[source] for source in node.inputs], execution)
            if position in computed:
                found = _point(computed[position])
                deviation = _deviation(node.name, value, found.lower)
                if deviation is not None:
                    return deviation
                value = found
            values.append(value)
    return None


def _point(value: Tensor) -> Interval:
    exact = value.detach().double()
    return Interval(exact, exact)


def _executed(node: Node, inputs: list[Interval], execution: Execution) -> Interval:
    """Bound what an execution computes at one node while its inputs lie in intervals, or are points."""
    operation = node.operation
    if all(bounds.lower is bounds.upper for bounds in inputs):
        value = _point(operation.apply(*(bounds.lower for bounds in inputs)))
    else:
        value = operation.interval(*inputs)
    rounding = operation.rounding(*(bounds.largest() for bounds in inputs))
    if rounding is None:
        return value
    own = gamma(rounding.terms + _OWN_ROUNDINGS, torch.float64) * rounding.size
    room = _SAFETY * (execution_error(rounding, execution) + own)
    return Interval(value.lower - room, value.upper + room)


def _deviation(layer: str, value: Interval, found: Tensor) -> Deviation | None:
    if value.lower.shape != found.shape:
        return Deviation(layer, f"has the shape {tuple(found.shape)} instead of {tuple(value.lower.shape)}")
    wrong = ~((value.lower <= found) & (found <= value.upper) & found.isfinite())
    if not bool(wrong.any()):
        return None
    centre, half = (value.lower + value.upper) / 2, (value.upper - value.lower) / 2
    expected, got, room = (float(numbers[wrong][0]) for numbers in (centre, found, half))
    if not math.isfinite(got):
        return Deviation(layer, f"computes {got}", overflows=True)
    return Deviation(layer, f"computes {got:g} instead of {expected:g}, and rounding explains {room:.1e} only")
