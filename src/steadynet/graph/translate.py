"""Translate PyTorch networks into graphs.

A trace (:mod:`steadynet.graph.trace`) finds the calls that the network makes. The tables
(:mod:`steadynet.graph.tables`) say which operation each call becomes. A call that is in no table is an error that names
the call and the layer.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet.graph.agreement import check_agreement, check_calls, check_weights
from steadynet.graph.clipping import clipping
from steadynet.graph.graph import Graph, Node
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Operation, Scale, Sum
from steadynet.graph.purity import BATCH, LARGE_BATCH, check_function
from steadynet.graph.rearrangements import Concat, Permute, Reshape
from steadynet.graph.tables import (
    ACTIVATIONS,
    ADDITIONS,
    CLIPPING_MODULES,
    CLIPS,
    CONCATENATIONS,
    DROPOUTS,
    IDENTITIES,
    MODULES,
    PERMUTATIONS,
    PRODUCTS,
    QUOTIENTS,
    RESHAPES,
    RESHAPING_MODULES,
    SUBTRACTIONS,
    TRANSPOSITIONS,
    NoBoundsError,
    Shape,
    average_pool,
    axis_order,
    leaky_relu,
    limits,
    max_pool,
    with_constant,
)
from steadynet.graph.trace import LEAVE_OUT, Trace, UnsupportedNetworkError, example_inputs, is_patched, some_weight


def graph_of(network: nn.Module, input_shape: tuple[int, ...], *, check: bool = True) -> Graph:
    """Translate a network in evaluation mode into a graph.

    The network is traced at each call, which takes some milliseconds, so the graph is that of the network as it is now.
    Its weights are those of the network, not copies.

    Args:
        network: The network.
        input_shape: The shape of one input, without the batch.
        check: Whether to check, by some passes on random images, that the network is a function without noise or state
            and that the graph computes the same, layer by layer. Training skips this after its first step.

    Returns:
        The graph.

    Raises:
        UnsupportedNetworkError: The network does something for which no bounds are known, or cannot be traced; it has
            noise or state, changes its images, or has weights that are not finite.

    >>> graph = graph_of(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), (2,))
    >>> [(node.name, type(node.operation).__name__, node.inputs) for node in graph.nodes]
    [('0', 'Dense', (0,)), ('1', 'ReLU', (1,))]
    """
    shape = tuple(input_shape)
    if type(network) is GraphNetwork and not is_patched(network):
        if shape != network.input_shape:
            raise UnsupportedNetworkError(f"this network takes inputs of shape {network.input_shape}, not {shape}")
        return network.graph
    trace = Trace(network, shape)
    translation = _Translation(network, trace)
    graph = translation.graph()
    if check:
        check_weights(network, graph)
        check_function(network, example_inputs(network, BATCH, shape))
        for batch in (BATCH, 1):
            check_agreement(graph, trace, translation.calls, example_inputs(network, batch, shape))
        check_calls(trace, example_inputs(network, LARGE_BATCH, shape))
    return graph


class _Translation:
    """One translation: a walk over the calls of a network, in their order.

    Attributes:
        nodes: The nodes of the graph so far.
        place: The position in the graph of the result of each call that depends on the network's input.
        seen: The calls that the walk has passed.
        calls: The call that computes each value of the graph, by position. Some values have none: one call may become
            several operations.
    """

    def __init__(self, network: nn.Module, trace: Trace) -> None:
        self.network, self.trace = network, trace
        self.nodes: list[Node] = []
        self.place: dict[torch.fx.Node, int] = {}
        self.seen: set[torch.fx.Node] = set()
        self.calls: dict[int, torch.fx.Node] = {}

    def graph(self) -> Graph:
        """Translate the whole network."""
        for call in self.trace.graph.nodes:
            self.seen.add(call)
            if call.op == "placeholder":
                if self.place:
                    raise UnsupportedNetworkError(f"{type(self.network).__name__} takes more than one input")
                self.place[call] = 0
            elif call.op == "output":
                return Graph(self._up_to(call.args[0]))
            elif any(source in self.place for source in call.all_input_nodes):
                self._translate(call)
            self._follow_changes(call)
        raise UnsupportedNetworkError(f"{type(self.network).__name__} has no output")

    def _up_to(self, result: Any) -> tuple[Node, ...]:
        if not isinstance(result, torch.fx.Node) or result not in self.place:
            raise UnsupportedNetworkError(f"{type(self.network).__name__} must return one tensor made from its input")
        if self.place[result] == len(self.nodes):
            return tuple(self.nodes)
        # the output is a value from the middle of the graph: repeat it at the end
        return (*self.nodes, Node("output", Reshape(self._shape(result)[1:]), (self.place[result],)))

    def _follow_changes(self, call: torch.fx.Node) -> None:
        """Handle a call that changes earlier results in place.

        An earlier result that is the same tensor as the call's result now means the new value. Any other changed result
        (a view, say) must not be used again.
        """
        for earlier in self.trace.changed[call]:
            if call in self.place and self.trace.values[earlier] is self.trace.values[call]:
                self.place[earlier] = self.place[call]
            elif not self.seen.issuperset(earlier.users):
                raise self._unsupported(call, f"a change in place of '{earlier.name}', which is used again")

    def _translate(self, call: torch.fx.Node) -> None:
        value = self.trace.values[call]
        parts = value if isinstance(value, (tuple, list)) else [value]
        if not any(isinstance(part, Tensor) for part in parts):
            return  # a number or a shape, which the trace has computed already
        try:
            if call.op == "call_module":
                self._module(call, self.network.get_submodule(str(call.target)))
            elif call.target in ADDITIONS | SUBTRACTIONS | PRODUCTS | QUOTIENTS:
                self._arithmetic(call)
            else:
                self._function(call)
        except NoBoundsError as error:
            raise self._unsupported(call, str(error)) from error

    def _shape(self, call: torch.fx.Node) -> Shape:
        return tuple(self.trace.values[call].shape)

    def _add(self, call: torch.fx.Node, operation: Operation, *sources: Any) -> None:
        if any(source not in self.place for source in sources):
            raise NoBoundsError(f"{_operation_name(call)} with something that is not data")
        self.nodes.append(Node(_layer_name(call), operation, tuple(self.place[source] for source in sources)))
        self._computed(call)

    def _computed(self, call: torch.fx.Node) -> None:
        """Note that the last node computes the result of a call."""
        self.place[call] = len(self.nodes)
        self.calls[len(self.nodes)] = call

    def _source(self, call: torch.fx.Node) -> torch.fx.Node:
        source = call.all_input_nodes[0]
        if source not in self.place and call.target not in CONCATENATIONS:
            raise NoBoundsError(f"{_operation_name(call)} of something that is not data")
        return source

    def _module(self, call: torch.fx.Node, module: nn.Module) -> None:
        source = self._source(call)
        if is_patched(module):
            raise NoBoundsError(f"a {type(module).__name__} with hooks or a replaced forward")
        if isinstance(module, RESHAPING_MODULES):
            self._reshape(call, source)
        elif type(module) in CLIPPING_MODULES:
            self._clip(call, source, *CLIPPING_MODULES[type(module)](module))
        elif type(module) not in MODULES:
            raise NoBoundsError(type(module).__name__)
        else:
            build = MODULES[type(module)]
            if build is None:
                self.place[call] = self.place[source]
            else:
                self._add(call, build(module, self._shape(source)), source)

    def _function(self, call: torch.fx.Node) -> None:
        source = self._source(call)
        resolved: Any = self.trace.map_nodes_to_values((call.args[1:], dict(call.kwargs)), call)
        args, kwargs = resolved[0], {name: value for name, value in resolved[1].items() if name != "input"}
        if call.target in ACTIVATIONS:
            self._add(call, ACTIVATIONS[call.target], source)
        elif call.target is F.leaky_relu:
            self._add(call, leaky_relu(float(kwargs["negative_slope"])), source)
        elif call.target in IDENTITIES or (call.target in DROPOUTS and kwargs["training"] is False):
            self.place[call] = self.place[source]
        elif call.target in RESHAPES:
            self._reshape(call, source)
        elif call.target in CLIPS:
            self._clip(call, source, *CLIPS[call.target](*args, **kwargs))
        elif call.target in PERMUTATIONS | TRANSPOSITIONS:
            self._add(call, Permute(axis_order(call.target, args, kwargs, len(self._shape(source)))), source)
        elif call.target in CONCATENATIONS:
            self._concatenate(call, kwargs.get("dim", args[0] if args else 0))
        elif call.target is F.max_pool2d:
            self._add(call, max_pool(*args, **kwargs), source)
        elif call.target is F.avg_pool2d:
            self._add(call, average_pool(*args, **kwargs), source)
        else:
            raise NoBoundsError(_operation_name(call))

    def _clip(self, call: torch.fx.Node, source: torch.fx.Node, least: Any, most: Any) -> None:
        place = self.place[call] = self.place[source]
        for operation in clipping(*limits(least, most), self._like(0.0)):
            self.nodes.append(Node(_layer_name(call), operation, (place,)))
            place = len(self.nodes)
        if place != self.place[source]:
            self._computed(call)

    def _concatenate(self, call: torch.fx.Node, axis: int) -> None:
        parts: Any = call.args[0] if call.args else call.kwargs["tensors"]
        if axis % len(self._shape(call)) == 0:
            raise NoBoundsError("a concatenation along the batch axis")
        self._add(call, Concat(axis), *parts)

    def _reshape(self, call: torch.fx.Node, source: torch.fx.Node) -> None:
        before, after = self.trace.values[source], self.trace.values[call]
        if after.shape[0] != before.shape[0] or after.dtype != before.dtype:
            raise NoBoundsError("a reshape that touches the batch axis")
        self._add(call, Reshape(tuple(after.shape[1:])), source)

    def _arithmetic(self, call: torch.fx.Node) -> None:
        if call.kwargs or len(call.args) != 2:
            raise NoBoundsError(f"{_operation_name(call)} with options")
        left, right = call.args
        moving = [side in self.place for side in (left, right)]
        if all(moving):
            self._of_two(call, left, right)
        elif moving[0]:
            self._with_constant(call, left, self._constant(call, right))
        elif call.target not in QUOTIENTS:
            self._with_constant(call, right, self._constant(call, left))
        else:
            raise NoBoundsError("a constant divided by data")

    def _of_two(self, call: torch.fx.Node, left: Any, right: Any) -> None:
        if self._shape(left) != self._shape(right):
            raise NoBoundsError("arithmetic that broadcasts data")
        if call.target in ADDITIONS:
            self._add(call, Sum(), left, right)
        elif call.target in SUBTRACTIONS:
            one = self._like(1.0)
            self.nodes.append(Node(f"{_layer_name(call)} (negated)", Scale(-one, 0 * one), (self.place[right],)))
            self.nodes.append(Node(_layer_name(call), Sum(), (self.place[left], len(self.nodes))))
            self._computed(call)
        else:
            raise NoBoundsError("a product or quotient of data")

    def _with_constant(self, call: torch.fx.Node, source: Any, constant: Tensor) -> None:
        if self._shape(call) != self._shape(source):
            raise NoBoundsError("arithmetic that broadcasts data")
        self._add(call, with_constant(call.target, constant, data_first=source is call.args[0]), source)

    def _constant(self, call: torch.fx.Node, value: Any) -> Tensor:
        """Return the constant that a call uses (a number, parameter or buffer), without an axis for the batch."""
        if isinstance(value, (int, float)):
            return self._like(float(value))
        if isinstance(value, torch.fx.Node) and value.op == "get_attr":
            constant = self.trace.values[value]
            axes = self.trace.values[call].dim()
            if isinstance(constant, Tensor) and (constant.dim() < axes or constant.shape[0] == 1):
                without_batch = constant if constant.dim() < axes else constant[0]
                return without_batch if constant.is_floating_point() else self._like(without_batch)
        raise NoBoundsError("arithmetic with something that is neither data nor a constant")

    def _like(self, number: Any) -> Tensor:
        reference = some_weight(self.network)
        return torch.as_tensor(number, device=reference.device, dtype=reference.dtype)

    def _unsupported(self, call: torch.fx.Node, what: str) -> UnsupportedNetworkError:
        hint = LEAVE_OUT if "softmax" in what.lower() else ""
        return UnsupportedNetworkError(f"no bounds for {what} (layer '{_layer_name(call)}'){hint}")


def _layer_name(call: torch.fx.Node) -> str:
    return str(call.target) if call.op == "call_module" else call.name


def _operation_name(call: torch.fx.Node) -> str:
    return getattr(call.target, "__name__", str(call.target))
