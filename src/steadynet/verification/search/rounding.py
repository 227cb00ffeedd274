"""When a float32 bound counts as a proof: clearly positive, or positive once more in float64.

A proof speaks of the network in exact arithmetic, but the network runs in float32, where a margin of 1e-8 may come out
as 0 or below. So a margin counts as proved only where it is larger than the network's own rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.backward import Backward
from steadynet.graph.graph import Graph
from steadynet.graph.operations import (
    Affine,
    AveragePool,
    Convolution,
    Dense,
    Interval,
    Operation,
    Rectifier,
    Scale,
    Sum,
)

CERTAIN = 1e-3  # a bound above this needs no second look in float64
ROOM = 2e-6  # of a layer's largest bound: what float32's rounding may have taken from its inner bounds
UNIT = 2.0**-23  # float32's: twice the rounding of one operation
SAFETY = 4.0  # standard deviations
DOUBT = 16.0  # bounds below this many roundings are computed again, too


def certain(lower: Tensor, again: Callable[[Tensor], Tensor], rounding: Tensor) -> Tensor:
    """Bounds less the network's ``rounding`` (n,); small ones ``again`` (rows → float64 bounds), negative if they fail.

    What is not finite proves nothing.
    """
    doubtful = ((lower > 0) & (lower <= doubt(rounding))).nonzero().flatten()
    result = torch.where(lower.isfinite() | (lower < 0), lower, -CERTAIN)
    if len(doubtful):
        with torch.no_grad():
            found = again(doubtful) - rounding[doubtful]
        result[doubtful] = torch.where(found > 0, found.clamp_min(1e-30), -CERTAIN).to(lower.dtype)
    return result


def doubt(rounding: Tensor) -> Tensor:
    """Bounds up to this need a second look."""
    return (DOUBT * rounding).clamp_min(CERTAIN)


def widened(backward: Backward) -> Backward:
    """Inner bounds with room for float32's rounding; a point stays a point."""
    errors, bounds = rounding_errors(backward), {}
    for position, known in backward.bounds.items():
        largest = torch.maximum(known.lower.abs(), known.upper.abs()).flatten(1).amax(1)
        room = ROOM * largest.view(-1, *[1] * (known.lower.dim() - 1))
        room = (room + errors[backward.graph.source(position)]) * (known.lower < known.upper)
        bounds[position] = Interval(known.lower - room, known.upper + room)
    return replace(backward, bounds=bounds)


def margin_rounding(backward: Backward) -> Tensor:
    """How far a margin computed in float32 may lie from the exact one, a property; shape (properties,)."""
    return 2 * rounding_errors(backward)[-1].flatten(1).amax(1)


def rounding_errors(backward: Backward) -> list[Tensor]:
    """How far each value of the network, run in float32, may lie from the exact one; (properties, *shape) each.

    Every sum is rounded by about a unit of the size of its terms (at their largest over the box); these errors are
    carried on as independent ones, by their squares, and taken ``SAFETY`` times.
    """
    with torch.no_grad():
        values, squares = [backward.box], [torch.zeros_like(backward.box.lower)]
        for position, node in backward.graph.numbered():
            known = [values[source] for source in node.inputs]
            if position in backward.bounds:
                known = [backward.bounds[position]]
            values.append(node.operation.interval(*known))
            carried = _squared(node.operation).apply(*(squares[source] for source in node.inputs))
            squares.append(carried + (UNIT * _terms(node.operation, known)) ** 2)
    return [SAFETY * square.sqrt() for square in squares]


def _terms(operation: Operation, known: list[Interval]) -> Tensor | float:
    """The size of what an operation adds up, at its largest; 0 for those that compute nothing."""
    sizes = [torch.maximum(value.lower.abs(), value.upper.abs()) for value in known]
    if isinstance(operation, (Sum, AveragePool)):
        return operation.apply(*sizes)
    if isinstance(operation, Rectifier):
        return operation.slope * sizes[0]
    return operation.size(sizes[0]) if isinstance(operation, Affine) else 0.0


def _squared(operation: Operation) -> Operation:
    """The operation that carries the squares of independent errors: with squared weights, and nothing added."""
    if isinstance(operation, Scale):
        return Scale(operation.factor**2, torch.zeros_like(operation.shift))
    if isinstance(operation, (Dense, Convolution)):
        return replace(operation, weight=operation.weight**2, bias=None)
    return operation


def in_float64(backward: Backward) -> Backward:
    """The same network, boxes and bounds in float64."""
    return _with_each(backward, lambda tensor: tensor.detach().double())


def on_cpu(backward: Backward) -> Backward:
    """The same network, boxes and bounds on the CPU."""
    return backward if backward.box.lower.device.type == "cpu" else _with_each(backward, Tensor.cpu)


def graph_in_float64(graph: Graph) -> Graph:
    """The same network in float64, detached."""
    return _graph_with_each(graph, lambda tensor: tensor.detach().double())


def _with_each(backward: Backward, change: Callable[[Tensor], Tensor]) -> Backward:
    graph, box = _graph_with_each(backward.graph, change), Interval(*map(change, backward.box))
    bounds = {position: Interval(*map(change, known)) for position, known in backward.bounds.items()}
    return replace(backward, graph=graph, box=box, bounds=bounds, matrices={})


def _graph_with_each(graph: Graph, change: Callable[[Tensor], Tensor]) -> Graph:
    return Graph(tuple(replace(node, operation=_operation(node.operation, change)) for node in graph.nodes))


def _operation(operation: Operation, change: Callable[[Tensor], Tensor]) -> Operation:
    tensors = {name: change(value) for name, value in vars(operation).items() if isinstance(value, Tensor)}
    return replace(operation, **tensors) if tensors else operation  # type: ignore[type-var]
