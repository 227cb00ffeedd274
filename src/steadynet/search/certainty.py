"""When a float32 bound counts as a proof: clearly positive, or positive once more in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.graph import Graph
from steadynet.bounds.linear import Backward
from steadynet.bounds.operations import Interval, Operation

CERTAIN = 1e-3  # a bound above this needs no second look in float64
ROOM = 2e-6  # of a layer's largest bound: what float32's rounding may have taken from its inner bounds


def certain(lower: Tensor, again: Callable[[Tensor], Tensor]) -> Tensor:
    """Bounds in (0, CERTAIN] computed ``again`` (rows → float64 bounds); negative where float64 does not agree."""
    doubtful = ((lower > 0) & (lower <= CERTAIN)).nonzero().flatten()
    if not len(doubtful):
        return lower
    with torch.no_grad():
        found = again(doubtful)
    result = lower.clone()
    result[doubtful] = torch.where(found > 0, found.clamp_min(1e-30), -CERTAIN).to(lower.dtype)
    return result


def widened(backward: Backward) -> Backward:
    """Inner bounds with room for float32's rounding; a point stays a point."""
    bounds = {}
    for position, known in backward.bounds.items():
        largest = torch.maximum(known.lower.abs(), known.upper.abs()).flatten(1).amax(1)
        room = ROOM * largest.view(-1, *[1] * (known.lower.dim() - 1)) * (known.lower < known.upper)
        bounds[position] = Interval(known.lower - room, known.upper + room)
    return replace(backward, bounds=bounds)


def in_float64(backward: Backward) -> Backward:
    """The same network, boxes and bounds in float64."""
    graph = Graph(tuple(replace(node, operation=_double(node.operation)) for node in backward.graph.nodes))
    bounds = {position: _double_interval(known) for position, known in backward.bounds.items()}
    return replace(backward, graph=graph, box=_double_interval(backward.box), bounds=bounds)


def _double_interval(known: Interval) -> Interval:
    return Interval(known.lower.double(), known.upper.double())


def _double(operation: Operation) -> Operation:
    tensors = {name: value.detach().double() for name, value in vars(operation).items() if isinstance(value, Tensor)}
    return replace(operation, **tensors) if tensors else operation  # type: ignore[type-var]
