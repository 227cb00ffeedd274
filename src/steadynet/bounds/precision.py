"""The same network, boxes and bounds in another precision or on another device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Interval


def in_float64(bounded: BoundedNetwork) -> BoundedNetwork:
    """The same network, boxes and bounds in float64."""
    return _converted(bounded, lambda tensor: tensor.detach().double())


def on_cpu(bounded: BoundedNetwork) -> BoundedNetwork:
    """The same network, boxes and bounds on the CPU."""
    return bounded if bounded.box.lower.device.type == "cpu" else _converted(bounded, Tensor.cpu)


def graph_in_float64(graph: Graph) -> Graph:
    """The same network in float64, detached from training."""
    return graph.converted(lambda tensor: tensor.detach().double())


def _converted(bounded: BoundedNetwork, convert: Callable[[Tensor], Tensor]) -> BoundedNetwork:
    graph, box = bounded.graph.converted(convert), Interval(*map(convert, bounded.box))
    bounds = {position: Interval(*map(convert, known)) for position, known in bounded.bounds.items()}
    rounding = None if bounded.rounding is None else bounded.rounding.converted(convert)
    return replace(bounded, graph=graph, box=box, bounds=bounds, rounding=rounding, matrices={})
