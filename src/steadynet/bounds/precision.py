"""The same network, boxes and bounds in another precision or on another device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Interval, Operation


def in_float64(bounded: BoundedNetwork) -> BoundedNetwork:
    """The same network, boxes and bounds in float64."""
    return _converted(bounded, lambda tensor: tensor.detach().double())


def on_cpu(bounded: BoundedNetwork) -> BoundedNetwork:
    """The same network, boxes and bounds on the CPU."""
    return bounded if bounded.box.lower.device.type == "cpu" else _converted(bounded, Tensor.cpu)


def graph_in_float64(graph: Graph) -> Graph:
    """The same network in float64, detached from training."""
    return _converted_graph(graph, lambda tensor: tensor.detach().double())


def _converted(bounded: BoundedNetwork, convert: Callable[[Tensor], Tensor]) -> BoundedNetwork:
    graph, box = _converted_graph(bounded.graph, convert), Interval(*map(convert, bounded.box))
    bounds = {position: Interval(*map(convert, known)) for position, known in bounded.bounds.items()}
    rounding = None if bounded.rounding is None else bounded.rounding.converted(convert)
    return replace(bounded, graph=graph, box=box, bounds=bounds, rounding=rounding, matrices={})


def _converted_graph(graph: Graph, convert: Callable[[Tensor], Tensor]) -> Graph:
    nodes = (replace(node, operation=_converted_operation(node.operation, convert)) for node in graph.nodes)
    return Graph(tuple(nodes))


def _converted_operation(operation: Operation, convert: Callable[[Tensor], Tensor]) -> Operation:
    tensors = {name: convert(value) for name, value in vars(operation).items() if isinstance(value, Tensor)}
    return replace(operation, **tensors) if tensors else operation  # type: ignore[type-var]
