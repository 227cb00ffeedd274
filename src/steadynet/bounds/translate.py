"""PyTorch networks into graphs: ``torch.fx`` finds the calls, the tables below say what each becomes.

Anything not in a table is an error that names the operation and the layer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet.attack import evaluation_mode
from steadynet.bounds.graph import Graph, Node
from steadynet.bounds.operations import (
    AveragePool,
    Concat,
    Convolution,
    Dense,
    MaxPool,
    Operation,
    Rectifier,
    Reshape,
    Scale,
    Sum,
)
from steadynet.errors import UserError


class UnsupportedNetworkError(UserError):
    """The network does something that no bound is known for."""


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _convolution(module: nn.Conv2d) -> Operation:
    if module.padding_mode != "zeros":
        raise UnsupportedNetworkError(f"Conv2d with padding_mode='{module.padding_mode}' has no bounds here")
    padding = module.padding if isinstance(module.padding, str) else _pair(module.padding)
    return Convolution(module.weight, module.bias, _pair(module.stride), padding, _pair(module.dilation), module.groups)


def _batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d) -> Operation:
    if module.running_mean is None or module.running_var is None:
        raise UnsupportedNetworkError("batch norm without running statistics has no bounds here")
    factor = torch.rsqrt(module.running_var + module.eps)
    factor = factor if module.weight is None else factor * module.weight
    shift = -module.running_mean * factor
    shift = shift if module.bias is None else shift + module.bias
    if isinstance(module, nn.BatchNorm2d):
        factor, shift = factor[:, None, None], shift[:, None, None]
    return Scale(factor, shift)


def _average_pool(module: nn.AvgPool2d) -> Operation:
    names = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    return AveragePool({name: getattr(module, name) for name in names})


def _max_pool(module: nn.MaxPool2d) -> Operation:
    return MaxPool(
        {name: getattr(module, name) for name in ("kernel_size", "stride", "padding", "dilation", "ceil_mode")}
    )


# module type -> the operation it is, or None where it changes nothing in evaluation mode
MODULES: dict[type[nn.Module], Callable[[Any], Operation] | None] = {
    nn.Linear: lambda module: Dense(module.weight, module.bias),
    nn.Conv2d: _convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.ReLU: lambda module: Rectifier(),
    nn.LeakyReLU: lambda module: Rectifier(module.negative_slope),
    nn.AvgPool2d: _average_pool,
    nn.MaxPool2d: _max_pool,
    nn.Identity: None,
    nn.Dropout: None,
    nn.Dropout2d: None,
}
RELUS = {F.relu, torch.relu, F.relu_, torch.relu_, "relu", "relu_"}
IDENTITIES = {F.dropout, F.dropout2d, "contiguous", "clone"}
RESHAPES = {torch.flatten, torch.reshape, "flatten", "view", "reshape", torch.squeeze, "squeeze", "unsqueeze"}
RESHAPING_MODULES = (nn.Flatten, nn.Unflatten)
ADDITIONS = {operator.add, torch.add, "add", operator.iadd, "add_"}
SUBTRACTIONS = {operator.sub, torch.sub, "sub", operator.isub}
PRODUCTS = {operator.mul, torch.mul, "mul", operator.imul}
QUOTIENTS = {operator.truediv, torch.div, "div", operator.itruediv}
IN_PLACE = {F.relu_, torch.relu_, operator.iadd, operator.isub, operator.imul, operator.itruediv}
CONCATENATIONS = {torch.cat, torch.concat}

_traces: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], _Trace]] = WeakKeyDictionary()


class _Trace(torch.fx.Interpreter):
    """The calls of one network, and the shape (or, for plain numbers, the value) of each result."""

    def __init__(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        try:
            module = torch.fx.symbolic_trace(network)
        except (torch.fx.proxy.TraceError, TypeError, RuntimeError, AttributeError, NameError) as error:
            raise UnsupportedNetworkError(
                f"{type(network).__name__} cannot be traced (its forward branches on data, or is no PyTorch): {error}"
            ) from error
        super().__init__(module)
        self.results: dict[torch.fx.Node, Any] = {}
        reference = next(network.parameters(), torch.zeros(()))
        self.example = torch.zeros(2, *shape, dtype=reference.dtype, device=reference.device)
        with torch.no_grad(), evaluation_mode(module):
            self.run(self.example)

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one call and keep the shape of its result."""
        result = super().run_node(n)
        self.results[n] = tuple(result.shape) if isinstance(result, Tensor) else result
        return result


def graph_of(network: nn.Module, input_shape: tuple[int, ...]) -> Graph:
    """The graph of a network for inputs of this shape (without the batch), its weights live.

    Tracing happens once a network; reading the weights each time.
    """
    shape = tuple(input_shape)
    known = _traces.setdefault(network, {})
    if shape in known:
        return _Translation(network, known[shape]).graph()
    trace = _Trace(network, shape)
    graph = _Translation(network, trace).graph()
    _check_same_output(network, graph, trace.example)
    known[shape] = trace
    return graph


def _check_same_output(network: nn.Module, graph: Graph, example: Tensor) -> None:
    """A graph that computes something else than its network proves nothing about it."""
    images = torch.rand(example.shape, generator=torch.Generator().manual_seed(0)).to(example)
    with torch.no_grad(), evaluation_mode(network):
        expected, found = network(images), graph.values(images)[-1]
    if not torch.allclose(expected, found, rtol=1e-3, atol=1e-3 * float(expected.abs().max() + 1e-6)):
        raise UnsupportedNetworkError(
            f"{type(network).__name__} was read wrongly (its forward changes a tensor in place that it uses again?)"
        )


class _Translation:
    """One walk over the calls of a network; ``place`` says where each data tensor went in the graph."""

    def __init__(self, network: nn.Module, trace: _Trace) -> None:
        self.network, self.trace = network, trace
        self.nodes: list[Node] = []
        self.place: dict[torch.fx.Node, int] = {}

    def graph(self) -> Graph:
        """The whole network, up to its output."""
        for call in self.trace.graph.nodes:
            if call.op == "placeholder":
                if self.place:
                    raise UnsupportedNetworkError(f"{type(self.network).__name__} takes more than one input")
                self.place[call] = 0
            elif call.op == "output":
                return Graph(self._up_to(call.args[0]))
            elif any(source in self.place for source in call.all_input_nodes):
                self._translate(call)
        raise UnsupportedNetworkError(f"{type(self.network).__name__} has no output")

    def _up_to(self, result: Any) -> tuple[Node, ...]:
        if not isinstance(result, torch.fx.Node) or result not in self.place:
            raise UnsupportedNetworkError(f"{type(self.network).__name__} must return one tensor")
        if self.place[result] == len(self.nodes):
            return tuple(self.nodes)
        shape = self.trace.results[result][1:]  # a value from the middle: repeat it at the end
        return (*self.nodes, Node("output", Reshape(shape), (self.place[result],)))

    def _translate(self, call: torch.fx.Node) -> None:
        result = self.trace.results[call]
        if not isinstance(result, tuple) or call.target in ("size", getattr):
            return  # a plain number or a shape, which the trace has evaluated
        if call.op == "call_module":
            self._module(call, self.network.get_submodule(str(call.target)))
        elif call.target in ADDITIONS | SUBTRACTIONS | PRODUCTS | QUOTIENTS:
            self._arithmetic(call)
        else:
            self._function(call)

    def _add(self, call: torch.fx.Node, operation: Operation, *sources: torch.fx.Node) -> None:
        self.nodes.append(Node(_layer_name(call), operation, tuple(self.place[source] for source in sources)))
        self.place[call] = len(self.nodes)
        if self._in_place(call):
            self.place[sources[0]] = self.place[call]

    def _in_place(self, call: torch.fx.Node) -> bool:
        if call.op == "call_module":
            return bool(getattr(self.network.get_submodule(str(call.target)), "inplace", False))
        changes = call.target in IN_PLACE or str(call.target).endswith("_")
        return changes or bool(call.kwargs.get("inplace", False))

    def _module(self, call: torch.fx.Node, module: nn.Module) -> None:
        source = call.all_input_nodes[0]
        if isinstance(module, RESHAPING_MODULES):
            self._reshape(call, source)
        elif isinstance(module, nn.AdaptiveAvgPool2d) and _pair(module.output_size) == (1, 1):
            self._add(call, AveragePool({"kernel_size": self.trace.results[source][2:]}), source)
        elif type(module) not in MODULES:
            raise self._unsupported(call, type(module).__name__)
        else:
            build = MODULES[type(module)]
            if build is None:
                self.place[call] = self.place[source]
            else:
                self._add(call, build(module), source)

    def _function(self, call: torch.fx.Node) -> None:
        source = call.all_input_nodes[0]
        if call.target in RELUS:
            self._add(call, Rectifier(), source)
        elif call.target in (F.leaky_relu,):
            slope = call.kwargs.get("negative_slope", call.args[1] if len(call.args) > 1 else 0.01)
            self._add(call, Rectifier(float(slope)), source)  # type: ignore[arg-type]
        elif call.target in IDENTITIES:
            self.place[call] = self.place[source]
        elif call.target in RESHAPES:
            self._reshape(call, source)
        elif call.target in CONCATENATIONS:
            axis: Any = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else 0)
            parts: Any = call.args[0]
            if axis % len(self.trace.results[call]) == 0:
                raise self._unsupported(call, "a concatenation along the batch axis")
            self._add(call, Concat(axis), *parts)
        elif call.target in (F.max_pool2d, F.avg_pool2d):
            self._pool(call, source)
        else:
            raise self._unsupported(call, getattr(call.target, "__name__", str(call.target)))

    def _pool(self, call: torch.fx.Node, source: torch.fx.Node) -> None:
        names = {
            F.max_pool2d: ("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
            F.avg_pool2d: ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
        }[call.target]  # type: ignore[index]
        options = dict(zip(names, call.args[1:], strict=False)) | {k: v for k, v in call.kwargs.items() if k in names}
        self._add(call, MaxPool(options) if call.target is F.max_pool2d else AveragePool(options), source)

    def _reshape(self, call: torch.fx.Node, source: torch.fx.Node) -> None:
        shape, before = self.trace.results[call], self.trace.results[source]
        if shape[0] != before[0]:
            raise self._unsupported(call, "a reshape that touches the batch axis")
        self._add(call, Reshape(shape[1:]), source)

    def _arithmetic(self, call: torch.fx.Node) -> None:
        left: Any = call.args[0]
        right: Any = call.args[1]
        moving = [isinstance(side, torch.fx.Node) and side in self.place for side in (left, right)]
        if call.kwargs or len(call.args) > 2:
            raise self._unsupported(call, f"{call.target} with options")
        if all(moving):
            self._of_two(call, left, right)
        elif moving[0]:
            self._with_constant(call, left, self._constant(call, right))
        elif call.target in ADDITIONS | PRODUCTS:
            self._with_constant(call, right, self._constant(call, left))
        elif call.target in SUBTRACTIONS:
            constant = self._constant(call, left)
            self._add(call, Scale(-torch.ones_like(constant), constant), right)
        else:
            raise self._unsupported(call, "a constant divided by data")

    def _of_two(self, call: torch.fx.Node, left: Any, right: Any) -> None:
        if self.trace.results[left] != self.trace.results[right]:
            raise self._unsupported(call, "arithmetic that broadcasts data")
        if call.target in ADDITIONS:
            self._add(call, Sum(), left, right)
        elif call.target in SUBTRACTIONS:
            one = self._like(torch.ones(()))
            self.nodes.append(Node(f"{_layer_name(call)} (negated)", Scale(-one, 0 * one), (self.place[right],)))
            self.nodes.append(Node(_layer_name(call), Sum(), (self.place[left], len(self.nodes))))
            self.place[call] = len(self.nodes)
        else:
            raise self._unsupported(call, "a product or quotient of data")

    def _with_constant(self, call: torch.fx.Node, source: Any, constant: Tensor) -> None:
        if call.target in ADDITIONS:
            operation = Scale(torch.ones_like(constant), constant)
        elif call.target in SUBTRACTIONS:
            operation = Scale(torch.ones_like(constant), -constant)
        elif call.target in PRODUCTS:
            operation = Scale(constant, torch.zeros_like(constant))
        else:
            operation = Scale(1 / constant, torch.zeros_like(constant))
        self._add(call, operation, source)

    def _constant(self, call: torch.fx.Node, value: Any) -> Tensor:
        if isinstance(value, (int, float)):
            return self._like(torch.tensor(float(value)))
        if isinstance(value, torch.fx.Node) and value.op == "get_attr":
            constant = operator.attrgetter(str(value.target))(self.network)
            if isinstance(constant, Tensor):
                whole = constant.dim() >= len(self.trace.results[call])  # it has an axis for the batch
                if not whole or constant.shape[0] == 1:
                    return constant.squeeze(0) if whole else constant
        raise self._unsupported(call, "arithmetic with something that is neither data nor a constant")

    def _like(self, number: Tensor) -> Tensor:
        reference = next(self.network.parameters(), number)
        return number.to(device=reference.device, dtype=reference.dtype)

    def _unsupported(self, call: torch.fx.Node, what: str) -> UnsupportedNetworkError:
        return UnsupportedNetworkError(f"no bounds for {what} (layer '{_layer_name(call)}')")


def _layer_name(call: torch.fx.Node) -> str:
    return str(call.target) if call.op == "call_module" else call.name
