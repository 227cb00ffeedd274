"""Leave out ReLUs that are never active: what is zero on every box needs no coefficients.

A channel of a convolution (or a neuron of a dense layer) whose ReLU is never active on any of the boxes is exactly zero
there, in the network as it is run, too: its bounds count every rounding. So the layers around it compute the same
without it, and a backward pass over them is cheaper. Adding zeros rounds nothing, so the rounding of what is left is at
most what it was.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.rounding import NetworkRounding
from steadynet.bounds.symbolic_end import SymbolicEnd
from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Convolution, Dense, Interval, Operation, ReLU, Shape
from steadynet.graph.rearrangements import Reshape

THINNING = True
MOST_KEPT = 0.9  # with more of its channels active, a layer is left as it is

Kept = dict[int, Tensor]  # by position: the channels, or the neurons, of a value that are kept


def thinned(bounded: BoundedNetwork) -> BoundedNetwork:
    """The same network over the same boxes without channels that are never active, up to the values known so far.

    Positions stay as they are. Queries may speak of values that no ReLU reads yet, as those are whole.
    """
    return _without_the_others(bounded, _kept(bounded) if THINNING else {})


def thinned_with_places(bounded: BoundedNetwork) -> tuple[BoundedNetwork, dict[int, Tensor]]:
    """The same, and where the elements of its ReLU layers have gone.

    Returns:
        The smaller network, and per position of a thinned ReLU layer, (elements of the whole layer,): the number of
        each in what is left, −1 where it is left out.
    """
    kept, places = _kept(bounded) if THINNING else {}, {}
    for relu in kept.keys() & set(bounded.graph.relus):
        channels, shape = kept[relu], bounded.shapes[relu]
        place = torch.full((shape[0], torch.Size(shape[1:]).numel()), -1, device=channels.device)
        place[channels] = torch.arange(len(channels) * place.shape[1], device=channels.device).view(len(channels), -1)
        places[relu] = place.flatten()
    return _without_the_others(bounded, kept), places


def _without_the_others(bounded: BoundedNetwork, kept: Kept) -> BoundedNetwork:
    """The network with nothing but the kept channels and neurons of some values."""
    if not kept:
        return bounded
    graph, shapes = bounded.graph, bounded.shapes
    nodes = [
        replace(node, operation=_thin(node, position, kept)) if position < len(shapes) else node
        for position, node in graph.numbered()
    ]
    smaller = tuple(_thin_shape(shape, kept.get(position)) for position, shape in enumerate(shapes))
    bounds, drawn = dict(bounded.bounds), {}
    for relu in graph.relus:
        if relu in kept and relu in bounds:
            bounds[relu] = Interval(*(bound.index_select(1, kept[relu]) for bound in bounds[relu]))
            lines = bounded.lines(relu).of_channels(kept[relu])
            drawn[relu] = bounds[relu], bounded.relax, lines
        elif relu in bounds:
            drawn[relu] = bounds[relu], bounded.relax, bounded.lines(relu)
    ends = {
        position: end.of_channels(kept.get(position)) if isinstance(end, SymbolicEnd) else end
        for position, end in bounded.ends.items()
    }
    rounding = None if bounded.rounding is None else _thin_rounding(bounded.rounding, kept)
    return replace(
        bounded,
        graph=Graph(tuple(nodes)),
        shapes=smaller,
        bounds=bounds,
        rounding=rounding,
        matrices={},
        drawn=drawn,
        ends=ends,
    )


def _kept(bounded: BoundedNetwork) -> Kept:
    """What is kept of the values around each ReLU that can be thinned; other values are missing."""
    graph, shapes = bounded.graph, bounded.shapes
    readers: dict[int, list[tuple[int, Node]]] = defaultdict(list)
    for position, node in graph.numbered():
        for source in node.inputs:
            readers[source].append((position, node))
    kept: Kept = {}
    for relu in graph.relus:
        if relu not in bounded.bounds or relu >= len(shapes):
            continue
        source, shape = graph.source(relu), shapes[relu]
        operation = graph.producer(relu).operation
        assert isinstance(operation, ReLU)
        flat = _flattened(readers[relu]) if len(shape) == 3 else []
        fits = all(position in flat or _reads_channels(node.operation, shape) for position, node in readers[relu])
        flat_fits = all(_reads_channels(node.operation, (1,)) for one in flat for _, node in readers[one])
        if graph.output in (relu, *flat):  # functions of the output speak of all of it
            continue
        if operation.slope or len(readers[source]) > 1 or not (fits and flat_fits):
            continue
        if source == 0 or not _reads_channels(graph.producer(source).operation, shape):
            continue
        active = (~(bounded.bounds[relu].upper <= 0)).transpose(0, 1).flatten(1).any(1)
        chosen = active.nonzero().flatten()
        if not 0 < len(chosen) <= MOST_KEPT * len(active):
            continue
        kept[relu] = kept[source] = chosen
        for position in flat:
            places = active.new_ones(len(active), shape[1] * shape[2])
            kept[position] = (places & active[:, None]).flatten().nonzero().flatten()
    return kept


def _flattened(readers: list[tuple[int, Node]]) -> list[int]:
    """The positions among the readers of a feature map that flatten it."""
    return [place for place, node in readers if isinstance(node.operation, Reshape) and len(node.operation.shape) == 1]


def _reads_channels(operation: Operation, shape: Shape) -> bool:
    """Whether an operation is a layer with a weight for each channel of a value of this shape, and no more."""
    if isinstance(operation, Convolution):
        return operation.groups == 1 and len(shape) == 3
    return isinstance(operation, Dense) and len(shape) == 1


def _thin(node: Node, position: int, kept: Kept) -> Operation:
    operation, outputs, inputs = node.operation, kept.get(position), kept.get(node.inputs[0])
    if isinstance(operation, (Convolution, Dense)):
        weight, bias = operation.weight, operation.bias
        if inputs is not None:
            weight = weight.index_select(1, inputs)
        if outputs is not None:
            weight, bias = weight.index_select(0, outputs), None if bias is None else bias.index_select(0, outputs)
        return operation if weight is operation.weight else replace(operation, weight=weight, bias=bias)
    if isinstance(operation, Reshape) and outputs is not None:
        return Reshape((len(outputs),))
    return operation


def _thin_shape(shape: Shape, kept: Tensor | None) -> Shape:
    return shape if kept is None else (len(kept), *shape[1:])


def _thin_rounding(rounding: NetworkRounding, kept: Kept) -> NetworkRounding:
    """The same rounding per channel; what counts for all channels together stays, which is on the safe side."""
    values = dict(rounding.values)
    for position in kept.keys() & values.keys():
        value, channels = values[position], kept[position]
        size = value.sums.size.index_select(1, channels)
        split = None if value.split is None else value.split.index_select(1, channels)
        values[position] = replace(value, sums=replace(value.sums, size=size), split=split)
    return replace(rounding, values=values)
