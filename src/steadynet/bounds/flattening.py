"""A network over one box with nothing but the neurons that are active at all: feature maps become lists of neurons.

:mod:`steadynet.bounds.thinning` leaves out channels that are never active. In a feature map, a channel is mostly active
somewhere, while half of its neurons are not. They are zero in the network as it is run, too, so a pass need not meet
them. What is left is computed by sparse matrices (:mod:`steadynet.bounds.sparse_layers`), which pays where many
functions of a dense layer are taken back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.exact_end import SECOND, ExactEnd, exact_end
from steadynet.bounds.flat_end import FlatEnd
from steadynet.bounds.relaxation import Relaxation
from steadynet.bounds.rounding import NetworkRounding, ValueRounding
from steadynet.bounds.sparse_layers import MapNeurons, SparseConvolution
from steadynet.bounds.symbolic_end import SymbolicEnd
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Dense, Interval, Operation, ReLU
from steadynet.graph.rearrangements import Reshape

FLATTENING = True
EXACT_END = True  # whether passes end at the second convolution, with the layers before it as one function
MOST_ACTIVE = 0.65  # share of the neurons of all feature maps that are active, up to which this is faster
LEAST_NEURONS = 4096  # of a feature map, below which nothing is gained

Flat = dict[int, MapNeurons]  # by position: the neurons of a feature map that are left, or all of the input


def flattened(bounded: BoundedNetwork, position: int) -> BoundedNetwork | None:
    """The same network up to a dense layer, with feature maps as lists of their active neurons.

    Args:
        bounded: a network over one box.
        position: a value that a dense layer computes. Queries may speak of this value only.

    Returns:
        The network; None if it is not a plain chain of convolutions and dense layers, or if this would not pay.
    """
    if not FLATTENING or not _is_suitable(bounded, position):
        return None
    maps = [place for place in range(1, position) if len(bounded.shapes[place]) == 3]
    if not maps or max(torch.Size(bounded.shapes[place]).numel() for place in maps) < LEAST_NEURONS:
        return None
    flat = _active_neurons(bounded, maps)
    whole = sum(torch.Size(bounded.shapes[place]).numel() for place in maps)
    if sum(map(len, flat.values())) > MOST_ACTIVE * whole or not all(map(len, flat.values())):
        return None
    return _with(bounded, position, flat)


def is_flat(bounded: BoundedNetwork) -> bool:
    """Whether this is what :func:`flattened` returns."""
    return isinstance(bounded.graph.nodes[0].operation, SparseConvolution)


def _is_suitable(bounded: BoundedNetwork, position: int) -> bool:
    box, graph = bounded.box.lower, bounded.graph
    if len(box) != 1 or box.dim() != 4 or box.device.type != "cpu" or box.dtype != torch.float32:
        return False
    if not torch.backends.mkl.is_available():
        return False
    nodes = [(place, node) for place, node in graph.numbered() if place <= position]
    in_a_row = all(node.inputs == (place - 1,) for place, node in nodes)
    known = all(_is_known(node.operation, bounded.shapes[place - 1]) for place, node in nodes)
    if not in_a_row or not known or not isinstance(nodes[-1][1].operation, Dense):
        return False
    maps = [place for place, _ in nodes if len(bounded.shapes[place]) == 3]  # each a convolution, then its ReLU
    pairs = all(
        isinstance(graph.producer(place).operation, (Convolution, ReLU)[number % 2])
        for number, place in enumerate(maps)
    )
    in_front = maps == list(range(1, len(maps) + 1)) and len(maps) % 2 == 0
    behind = (node.operation for _, node in nodes[len(maps) :])
    reader = next(operation for operation in behind if not isinstance(operation, Reshape))  # of what the last map holds
    known_signs = all(place in bounded.bounds for place in graph.relus if place < position)
    return in_front and pairs and isinstance(reader, Dense) and known_signs


def _is_known(operation: Operation, shape: tuple[int, ...]) -> bool:
    if isinstance(operation, Convolution):
        plain = operation.groups == 1 and operation.dilation == (1, 1)
        return plain and operation.stride[0] > 0 and not operation.weight.requires_grad
    if isinstance(operation, Reshape):
        return len(operation.shape) == 1 and len(shape) in (1, 3)
    return isinstance(operation, (Dense, ReLU)) and not (isinstance(operation, ReLU) and operation.slope)


def _active_neurons(bounded: BoundedNetwork, maps: list[int]) -> Flat:
    """The neurons of every feature map whose ReLU is active somewhere on the box, for the map and for its input."""
    flat: Flat = {}
    for relu in bounded.graph.relus:
        if relu in maps:
            flat[relu] = flat[relu - 1] = MapNeurons.where(~(bounded.bounds[relu].upper[0] <= 0))
    return flat


def _with(bounded: BoundedNetwork, position: int, flat: Flat) -> BoundedNetwork:
    """The network with nothing but these neurons of its feature maps."""
    nodes, shapes = list(bounded.graph.nodes), list(bounded.shapes)
    neurons: Flat = dict(flat)
    for place in range(1, position + 1):
        node = bounded.graph.producer(place)
        operation = _operation(bounded, place, node.operation, neurons)
        if isinstance(operation, Reshape) and place - 1 in neurons:
            neurons[place] = neurons[place - 1]
        if place in neurons:
            shapes[place] = (len(neurons[place]),)
        nodes[place - 1] = replace(node, operation=operation)
    bounds, drawn = dict(bounded.bounds), {}
    for relu in bounded.graph.relus:
        if relu in flat:
            elements = flat[relu].elements
            bounds[relu] = Interval(*(_chosen(side, elements) for side in bounded.bounds[relu]))
            drawn[relu] = bounds[relu], bounded.relax, _chosen_lines(bounded.lines(relu), elements)
        elif relu in bounds:
            drawn[relu] = bounds[relu], bounded.relax, bounded.lines(relu)
    ends = _ends(bounded, flat)
    rounding = None if bounded.rounding is None else _rounding(bounded.rounding, neurons)
    return replace(
        bounded, graph=Graph(tuple(nodes)), shapes=tuple(shapes), bounds=bounds, rounding=rounding, matrices={},
        drawn=drawn, ends=ends,
    )  # fmt: skip


def _ends(bounded: BoundedNetwork, flat: Flat) -> dict[int, SymbolicEnd | FlatEnd | ExactEnd]:
    """Where passes may end: at the second convolution, or else where symbolic intervals are known."""
    exact = _exact_end(bounded, flat) if EXACT_END and bounded.symbolic is not None else None
    if exact is not None:
        return {SECOND: exact}
    return {
        place: end.of_neurons(flat[place])
        for place, end in bounded.ends.items()
        if place in flat and isinstance(end, SymbolicEnd)
    }


def _exact_end(bounded: BoundedNetwork, flat: Flat) -> ExactEnd | None:
    """The end at the second convolution, made once for the same bounds of the ReLUs behind it."""
    if SECOND not in flat or bounded.symbolic is None:
        return None
    active = bounded.bounds[SECOND + 1].upper
    kept = bounded.exact_ends.get(SECOND)
    if kept is None or kept[0] is not active or kept[1] is not bounded.symbolic:
        made = exact_end(bounded.graph, bounded.symbolic, flat[SECOND])
        kept = bounded.exact_ends[SECOND] = active, bounded.symbolic, made
    return kept[2]


def _operation(bounded: BoundedNetwork, place: int, operation: Operation, neurons: Flat) -> Operation:
    """The operation that computes a value, between the neurons that are left."""
    if isinstance(operation, Convolution):
        is_first = place == 1
        inputs = MapNeurons.all_of(bounded.shapes[0]) if is_first else neurons[place - 1]
        return _kept(bounded, place, lambda: SparseConvolution(operation, inputs, neurons[place], is_first))
    if isinstance(operation, Reshape) and place - 1 in neurons:
        return Reshape((len(neurons[place - 1]),))
    if isinstance(operation, Dense) and place - 1 in neurons:
        return replace(operation, weight=operation.weight.index_select(1, neurons[place - 1].elements))
    if place - 1 in neurons and place not in neurons:  # it would read a list as if it were the whole map
        raise AssertionError(f"{operation} cannot read a list of neurons")
    return operation


def _kept(bounded: BoundedNetwork, place: int, make: Callable[[], SparseConvolution]) -> SparseConvolution:
    """A sparse convolution, made once for the same bounds of the ReLUs on both of its sides."""
    sides = tuple(bounded.bounds[relu].upper for relu in (place - 1, place + 1) if relu in bounded.bounds)
    known = bounded.sparse.get(place)
    if (
        known is None
        or len(known[0]) != len(sides)
        or any(one is not other for one, other in zip(known[0], sides, strict=True))
    ):
        known = bounded.sparse[place] = sides, make()
    return known[1]


def _chosen(side: Tensor, elements: Tensor) -> Tensor:
    return side.flatten(1).index_select(1, elements)


def _chosen_lines(lines: Relaxation, elements: Tensor) -> Relaxation:
    lower, upper, shift = (
        _chosen(line, elements) for line in (lines.lower_slope, lines.upper_slope, lines.upper_shift)
    )
    return Relaxation(lower, upper, shift, lines.slope)


def _rounding(rounding: NetworkRounding, neurons: Mapping[int, MapNeurons]) -> NetworkRounding:
    """The same rounding per neuron; what counts for all neurons together stays, which is on the safe side."""

    def chosen(size: Tensor, kept: MapNeurons) -> Tensor:
        of_channels = size.dim() == 2 and size.shape[1] == kept.shape[0] and len(kept.shape) == 3
        return size[:, torch.from_numpy(kept.channels)] if of_channels else _chosen(size, kept.elements)

    def converted(value: ValueRounding, kept: MapNeurons) -> ValueRounding:
        split = None if value.split is None else chosen(value.split, kept)
        return replace(value, sums=replace(value.sums, size=chosen(value.sums.size, kept)), split=split)

    values = {
        place: converted(value, neurons[place]) if place in neurons else value
        for place, value in rounding.values.items()
    }
    return replace(rounding, values=values, known_errors={})
