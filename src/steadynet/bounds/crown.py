"""CROWN bounds of every ReLU input and of the output: intervals first, then backward only what they leave unstable."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.bounds.backward import Backward, Rows
from steadynet.bounds.layer_bounds import LayerBounds
from steadynet.bounds.patches import Patch
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Interval, MaxPool, Rectifier, Scale, Shape
from steadynet.graph.translate import graph_of

MEMORY = 512 * 2**20  # bytes a backward pass may take
CACHED_COEFFICIENTS = 3 << 19  # rows times their width that are handled at once


def crown_bounds(network: nn.Module, region: InputRegion, memory: int = MEMORY) -> LayerBounds:
    """Bounds of every ReLU input and of the logits over the region, by backward linear relaxation."""
    graph = graph_of(network, region.lower.shape[1:])
    backward, values = propagate(graph, Interval(region.lower, region.upper), memory)
    output = tightened(backward, graph.output, values[-1], torch.ones_like(values[-1].lower, dtype=torch.bool), memory)
    relus = [backward.bounds[relu] for relu in graph.relus]
    return LayerBounds("crown", relus, output)


class OutOfTimeError(Exception):
    """The time given to a computation is over; nothing of it is usable."""


def propagate(
    graph: Graph,
    box: Interval,
    memory: int = MEMORY,
    out_of_time: Callable[[], bool] = lambda: False,
    relaxed: type[Backward] = Backward,
    known: Mapping[int, Interval] | None = None,
) -> tuple[Backward, list[Interval]]:
    """Bounds of every value, node by node: the interval of its inputs, and CROWN where a rectifier needs better.

    ``relaxed`` says by which lines: CROWN's own unless given. ``known``: bounds of the inputs of rectifiers and maxima
    that hold on the box already, by the position of the node.
    """
    values = [box]
    backward = relaxed(graph, [tuple(box.lower.shape[1:])], box, {})
    nonlinear_before = [False]
    for position, node in graph.numbered():
        curved = isinstance(node.operation, (Rectifier, MaxPool))
        if curved:
            source = node.inputs[0]
            if known:
                values[source] = _within(values[source], known[position])
            if nonlinear_before[source]:
                unstable = (values[source].lower < 0) & (values[source].upper > 0)
                wanted = torch.ones_like(unstable) if isinstance(node.operation, MaxPool) else unstable
                values[source] = tightened(backward, source, values[source], wanted, memory, out_of_time)
            backward.bounds[position] = values[source]
        values.append(node.operation.interval(*(values[source] for source in node.inputs)))
        backward.shapes.append(tuple(values[-1].lower.shape[1:]))
        nonlinear_before.append(curved or any(nonlinear_before[source] for source in node.inputs))
    return backward, values


def _within(one: Interval, other: Interval) -> Interval:
    """What satisfies both, and never less than a point, whatever rounding did."""
    lower = torch.maximum(one.lower, other.lower)
    return Interval(lower, torch.maximum(torch.minimum(one.upper, other.upper), lower))


def tightened(
    backward: Backward,
    position: int,
    known: Interval,
    wanted: Tensor,
    memory: int,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Interval:
    """The known bounds of a value, with CROWN's where ``wanted`` and tighter."""
    relaxations = {relu: backward.relaxation(relu) for relu in backward.graph.relus if relu <= position}

    def bound(rows: Rows, owner: Tensor) -> Tensor:
        if out_of_time():
            raise OutOfTimeError
        return backward.lower(position, rows, owner, relaxations=relaxations)

    return sharpened(known, wanted, backward.shapes[position], rows_at_once(backward, position, memory), bound)


def sharpened(
    known: Interval, wanted: Tensor, shape: Shape, at_once: int, bound: Callable[[Rows, Tensor], Tensor]
) -> Interval:
    """The known bounds with those of ``bound`` (rows, owners → lower bounds) where ``wanted`` and tighter."""
    lower, upper = known.lower.clone(), known.upper.clone()
    chosen = wanted.nonzero()
    for some in chosen.split(at_once) if len(chosen) else ():
        rows, owner = select(some, shape, lower.dtype)
        negated = Rows(-rows.coefficients, rows.window, rows.cells)
        index = tuple(some.t())
        lower[index] = torch.maximum(lower[index], bound(rows, owner))
        upper[index] = torch.minimum(upper[index], -bound(negated, owner))
    return Interval(lower, torch.maximum(upper, lower))


def rows_at_once(backward: Backward, position: int, memory: int) -> int:
    """How many rows fit the memory, and the cache: more at once would be no faster."""
    width = _row_width(backward, position)
    return max(32, min(memory // (width * 4 * 6), CACHED_COEFFICIENTS // width))


def _row_width(backward: Backward, position: int) -> int:
    """The most coefficients a row for one neuron of this value has on its way back, along the first inputs."""
    shapes = backward.shapes
    window = Patch.single(*shapes[position][1:]) if len(shapes[position]) == 3 else None
    widest = 1
    while position > 0:
        node = backward.graph.producer(position)
        if not isinstance(node.operation, (Rectifier, Scale)):
            convolution = isinstance(node.operation, Convolution) and node.operation.groups == 1
            window = window.behind(node.operation) if window and isinstance(node.operation, Convolution) else None
            window = window if convolution else None
        position = node.inputs[0]
        shape = shapes[position]
        if window is not None and window.covers(shape):
            window = None
        size = torch.Size(shape).numel() if window is None else shape[0] * window.size[0] * window.size[1]
        widest = max(widest, size)
    return widest


def select(chosen: Tensor, shape: Shape, dtype: torch.dtype) -> tuple[Rows, Tensor]:
    """Rows that pick single neurons, ``chosen`` (n, 1 + axes): property, then position; and their owners."""
    owner = chosen[:, 0]
    if len(shape) == 3:
        channels, height, width = shape
        coefficients = torch.zeros(len(chosen), channels, 1, 1, dtype=dtype, device=chosen.device)
        coefficients[torch.arange(len(chosen), device=chosen.device), chosen[:, 1]] = 1.0
        return Rows(coefficients, Patch.single(height, width), chosen[:, 2] * width + chosen[:, 3]), owner
    coefficients = torch.zeros(len(chosen), *shape, dtype=dtype, device=chosen.device)
    place = (torch.arange(len(chosen), device=chosen.device), *chosen[:, 1:].t())
    coefficients[place] = 1.0
    return Rows(coefficients), owner
