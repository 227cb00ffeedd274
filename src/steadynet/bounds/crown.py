"""CROWN bounds of every ReLU input and of the output: intervals first, backward passes where a ReLU is unstable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.flattening import flattened, is_flat
from steadynet.bounds.layer_bounds import LayerBounds
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.patches import Patch
from steadynet.bounds.queries import BoundQuery
from steadynet.bounds.relaxation import Relax, Relaxation
from steadynet.bounds.rounding import RoundingRecorder
from steadynet.bounds.sharpening import SignsFirst, first_sides_sharpened, sharpened, signs_sharpened
from steadynet.bounds.symbolic import SymbolicPass
from steadynet.bounds.symbolic_end import SymbolicEnd, ends_before
from steadynet.bounds.thinning import thinned
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Dense, Interval, Operation, ReLU, Scale
from steadynet.graph.pooling import MaxPool
from steadynet.graph.rearrangements import Permute, Reshape
from steadynet.graph.rounding import Execution
from steadynet.graph.s_shaped import SShaped
from steadynet.graph.translate import graph_of

MEMORY = 512 * 2**20  # bytes that a backward pass may take
SYMBOLIC = True  # whether symbolic intervals come before the backward passes of networks with large feature maps
LARGE_MAP = 4096  # neurons of such a feature map
LEAST_THINNED = 1 << 18  # functions times their width for which channels that are never active are left out
LEAST_FLATTENED = 96  # functions of a dense layer for which single neurons that are never active are left out
FLAT_AT_ONCE = 512  # functions of such a layer: enough for products in dense blocks
CACHED_COEFFICIENTS = 3 << 18  # functions times their width that are handled at once: about what a cache holds


def crown_bounds(network: nn.Module, region: InputRegion, memory: int = MEMORY) -> LayerBounds:
    """Bound every ReLU input and every logit over a region by backward linear relaxation (CROWN).

    Args:
        network: any PyTorch network whose operations are known (see ``graph/tables.py``).
        region: the input boxes, one per image.
        memory: bytes that a backward pass may take.

    Returns:
        The bounds, one interval per ReLU layer and one for the output.

    Raises:
        UnsupportedNetworkError: the network has an operation without bounds; the message names it.

    Example:
        >>> network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))  # relu(x) − relu(x + 1)
        >>> values = ([[1.0], [1.0]], [0.0, 1.0], [[1.0, -1.0]], [0.0])
        >>> for parameter, value in zip(network.parameters(), values):
        ...     parameter.data = torch.tensor(value)
        >>> crown_bounds(network, InputRegion(torch.tensor([[0.5]]), torch.tensor([[1.0]]))).output
        Interval(lower=tensor([[-1.]]...), upper=tensor([[-1.]]...))
    """
    graph = graph_of(network, region.lower.shape[1:])
    bounded, values = propagate(graph, Interval(region.lower, region.upper), memory)
    every = torch.ones_like(values[-1].lower, dtype=torch.bool)
    output = tightened(bounded, bounded.output, values[-1], every, memory)
    return LayerBounds("crown", bounded.relus(), output)


class OutOfTimeError(Exception):
    """The time given to a computation is over; nothing of it is usable."""


def propagate(
    graph: Graph,
    box: Interval,
    memory: int = MEMORY,
    out_of_time: Callable[[], bool] = lambda: False,
    relax: Relax = Relaxation.crown,
    known: Mapping[int, Interval] | None = None,
    execution: Execution | None = None,
    until_stable: bool = False,
) -> tuple[BoundedNetwork, list[Interval]]:
    """Bound every value of the graph over a box, node by node, from the input to the output.

    Each value gets the interval of its operation. Before a ReLU or a maximum, a backward pass bounds again what
    intervals leave open.

    Args:
        graph: the network.
        box: the input boxes, one row per property.
        memory: bytes that a backward pass may take.
        out_of_time: is asked between backward passes.
        relax: the lines that enclose a ReLU.
        known: bounds of the inputs of ReLUs and maxima that already hold on the box, by position.
        execution: the execution of the network that bounds shall hold for, with every rounding counted. None computes
            bounds as training and statistics need them: close, but no proof.
        until_stable: whether to leave the second bound of a ReLU's input to intervals if the first one shows its sign.
            The centre of the box tells which bound comes first.

    Returns:
        The network with its inner bounds, and the interval of every value.

    Raises:
        OutOfTimeError: ``out_of_time`` said yes.
    """
    values = [box]
    bounded = BoundedNetwork(graph, (tuple(box.lower.shape[1:]),), box, {}, relax)
    recorder = None if execution is None else RoundingRecorder(graph, execution, box)
    at_centre = graph.values((box.lower + box.upper) / 2) if until_stable else None
    symbolic = _symbolic(graph, box, at_centre, memory) if recorder is not None and at_centre is not None else None
    knowledge = [Knowledge.BOX]  # per value: what its interval says
    ends: Mapping[int, SymbolicEnd] = {}
    for position, node in graph.numbered():
        if isinstance(node.operation, NONLINEAR):
            source = node.inputs[0]
            if known:
                values[source] = _intersection(values[source], known[position])
            if symbolic is not None:
                values[source] = symbolic.sharpened(source, values[source])
            if knowledge[source] is Knowledge.LOOSE:  # directly behind the input, intervals are exact
                wanted = worth_bounding(node.operation, values[source])
                signs = None if at_centre is None else _signs_first(position, graph, at_centre[source])
                passes = bounded
                if symbolic is not None:
                    ends = {} if source in symbolic.values else ends or ends_before(source, symbolic)
                    passes = replace(bounded, ends=ends, symbolic=symbolic)
                passes = _quicker_for(passes, source, int(wanted.sum())) if until_stable else passes
                values[source] = tightened(passes, source, values[source], wanted, memory, out_of_time, signs)
            bounded = replace(bounded, bounds={**bounded.bounds, position: values[source]})
        inputs = [values[source] for source in node.inputs]
        value = node.operation.interval(*inputs)
        shape = tuple(value.lower.shape[1:])
        bounded = replace(bounded, shapes=(*bounded.shapes, shape))
        if recorder is not None:
            value = recorder.record(position, node, inputs, value)
            bounded = replace(bounded, rounding=recorder.rounding)
        if symbolic is not None and recorder is not None:
            lines = bounded.lines(position) if isinstance(node.operation, ReLU) else None
            symbolic.step(position, node, recorder.rounding, lines)
        values.append(value)
        knowledge.append(Knowledge.behind(node.operation, [knowledge[source] for source in node.inputs]))
    return bounded, values


NONLINEAR = (ReLU, SShaped, MaxPool)


def _symbolic(graph: Graph, box: Interval, at_centre: Sequence[Tensor], memory: int) -> SymbolicPass | None:
    """Symbolic intervals of a network that has a large feature map behind other ReLUs; None if it has none."""
    if not SYMBOLIC or not has_large_maps(graph, at_centre):
        return None
    return SymbolicPass(box, memory // (4 * box.lower.element_size()))


def has_large_maps(graph: Graph, values: Sequence[Tensor]) -> bool:
    """Whether a network of images has a large feature map behind other ReLUs: then its first bounds take long.

    Args:
        graph: the network.
        values: all of its values for some input, (batch, \\*shape) each.
    """
    behind = [values[graph.source(relu)] for relu in graph.relus[1:]]
    return values[0].dim() == 4 and any(value.dim() == 4 and value[0].numel() >= LARGE_MAP for value in behind)


def _signs_first(position: int, graph: Graph, at_centre: Tensor) -> SignsFirst | None:
    """How to bound the input of an operation; None if both bounds are of use wherever they are."""
    operation = graph.producer(position).operation
    if not isinstance(operation, ReLU) or operation.slope:
        return None
    nonlinear = [place for place, node in graph.numbered() if isinstance(node.operation, NONLINEAR)]
    return SignsFirst(at_centre, nonlinear.index(position), position == nonlinear[-1])


_FLAT = 1e-6  # of its height: if a sigmoid or tanh rises by less in its bounds, tighter bounds gain nothing


def worth_bounding(operation: Operation, bounds: Interval) -> Tensor:
    """Where tighter bounds of an operation's input may help, a mask: not where a ReLU is stable, or a sigmoid flat."""
    if isinstance(operation, ReLU):
        return bounds.unstable()
    if isinstance(operation, SShaped):
        lower, upper = (operation.apply(side) for side in bounds)
        return ~(upper - lower < _FLAT * operation.units.height)
    return torch.ones_like(bounds.lower, dtype=torch.bool)


def _intersection(one: Interval, other: Interval) -> Interval:
    """What satisfies both, and never less than a point, whatever rounding did."""
    lower = torch.maximum(one.lower, other.lower)
    return Interval(lower, torch.maximum(torch.minimum(one.upper, other.upper), lower))


def tightened(
    bounded: BoundedNetwork,
    position: int,
    known: Interval,
    wanted: Tensor,
    memory: int,
    out_of_time: Callable[[], bool] = lambda: False,
    signs: SignsFirst | None = None,
) -> Interval:
    """The known bounds of a value, with those of a backward pass where they are ``wanted`` and tighter.

    With ``signs``, the second bound of a neuron is left out where its sign makes it useless.
    """
    shape = bounded.shapes[position]
    if signs is not None and not all(end.is_exact for end in bounded.ends.values()):
        known = _signs_proved_early(bounded, position, known, wanted, memory, out_of_time, signs)
        wanted = wanted & known.unstable()
    relaxed = bounded.relaxed(position)

    def bound(functions: LinearFunctions, owner: Tensor) -> Tensor:
        if out_of_time():
            raise OutOfTimeError
        return relaxed.lower(BoundQuery(position, functions, owner)).bound(known.lower.dtype)

    at_once = functions_at_once(bounded, position, memory)
    if signs is None:
        return sharpened(known, wanted, shape, at_once, bound)
    return signs_sharpened(known, wanted, signs, shape, at_once, bound)


class Knowledge(IntEnum):
    """What the interval of a value says. Two layers without a ReLU between them are loose: their terms may cancel."""

    LOOSE = 0  # the value may stay away from the ends of its interval
    EXACT = 1  # each number of the value reaches the ends of its interval
    BOX = 2  # each number does so by itself, whatever the others are

    @classmethod
    def behind(cls, operation: Operation, inputs: list[Knowledge]) -> Knowledge:
        """What the interval of an operation's value says, if this is known of those that it reads."""
        if isinstance(operation, (Scale, Reshape, Permute)):
            return inputs[0]
        if isinstance(operation, (Dense, Convolution)) and inputs[0] is cls.BOX:
            return cls.EXACT
        return cls.LOOSE


def smaller_for(bounded: BoundedNetwork, position: int, functions: int) -> BoundedNetwork:
    """The network for so many functions of a value: without channels that are never active, where that pays."""
    return thinned(bounded) if functions * _widest(bounded, position) >= LEAST_THINNED else bounded


def _quicker_for(bounded: BoundedNetwork, position: int, functions: int) -> BoundedNetwork:
    """The same, without neurons that are never active where there are enough functions of a dense layer."""
    flat = flattened(bounded, position) if functions >= LEAST_FLATTENED else None
    return flat or smaller_for(bounded, position, functions)


def _signs_proved_early(
    bounded: BoundedNetwork,
    position: int,
    known: Interval,
    wanted: Tensor,
    memory: int,
    out_of_time: Callable[[], bool],
    signs: SignsFirst,
) -> Interval:
    """The known bounds, with those that prove signs by passes which end early."""
    relaxed = bounded.relaxed(position, early=True)

    def bound(functions: LinearFunctions, owner: Tensor) -> Tensor:
        if out_of_time():
            raise OutOfTimeError
        return relaxed.lower(BoundQuery(position, functions, owner)).bound(known.lower.dtype)

    at_once, likely = functions_at_once(bounded, position, memory, early=True), wanted & ~signs.hopeless(known)
    return first_sides_sharpened(known, likely, signs, bounded.shapes[position], at_once, bound)


def functions_at_once(bounded: BoundedNetwork, position: int, memory: int, early: bool = False) -> int:
    """How many functions of a value fit the memory and the cache; more at once would be no faster."""
    if is_flat(bounded):
        return FLAT_AT_ONCE
    width = _widest(bounded, position, early)
    return max(32, min(memory // (width * 4 * 6), CACHED_COEFFICIENTS // width))


def _widest(bounded: BoundedNetwork, position: int, early: bool = False) -> int:
    """The most coefficients that a function of one neuron has on its way back, along the first inputs."""
    shapes = bounded.shapes
    patch = Patch.single(*shapes[position][1:]) if len(shapes[position]) == 3 else None
    widest = 1
    while position > 0 and not (early and position in bounded.ends):
        node = bounded.graph.producer(position)
        if not isinstance(node.operation, (ReLU, SShaped, Scale)):
            convolution = isinstance(node.operation, Convolution) and node.operation.groups == 1
            patch = patch.behind(node.operation) if patch and isinstance(node.operation, Convolution) else None
            patch = patch if convolution else None
        position = node.inputs[0]
        shape = shapes[position]
        if patch is not None and patch.covers(shape):
            patch = None
        size = torch.Size(shape).numel() if patch is None else shape[0] * patch.size[0] * patch.size[1]
        widest = max(widest, size)
    return widest
