"""Networks as ONNX files: the graph that bounds are computed on, one row an operation, checked before it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from steadynet.errors import UserError, one_line
from steadynet.files import write_atomically
from steadynet.graph.graph import Graph
from steadynet.graph.operations import (
    AveragePool,
    Concat,
    Convolution,
    Dense,
    MaxPool,
    Operation,
    Pad,
    Permute,
    Rectifier,
    Reshape,
    Scale,
    Shape,
    Sum,
    Take,
)
from steadynet.graph.translate import graph_of
from steadynet.interchange.onnx.runtime import runtime_function
from steadynet.networks.evaluation_mode import evaluation_mode

OPSET, IR_VERSION = 17, 8  # old enough for every tool, new enough for every operation
TOLERANCE = 1e-4  # of the largest output: what the order of float32 sums may change


def export_onnx(network: nn.Module, image_shape: Shape, path: str | Path) -> None:
    """Write a network in evaluation mode, any batch size; the file is there once ONNX Runtime agrees with PyTorch."""
    path, shape = Path(path), tuple(image_shape)
    model = _model(graph_of(network, shape), shape)
    try:
        onnx.checker.check_model(model, full_check=True)
        _check_same_output(network, model, shape)
    except UserError:
        raise
    except Exception as error:  # the checker and ONNX Runtime have no common error
        raise UserError(f"cannot write {path}: ONNX does not take this network: {one_line(error)}") from error
    write_atomically(path, lambda temporary: temporary.write_bytes(model.SerializeToString()))


def _check_same_output(network: nn.Module, model: onnx.ModelProto, shape: Shape) -> None:
    weights = [weight for weight in (*network.parameters(), *network.buffers()) if weight.is_floating_point()]
    reference = weights[0] if weights else torch.zeros(())
    random, run = np.random.default_rng(0), runtime_function(model)
    for batch, (low, high) in enumerate(((0, 1), (-1, 2), (-10, 10)), 1):
        images = random.uniform(low, high, (batch, *shape)).astype(np.float32)
        with torch.no_grad(), evaluation_mode(network):
            expected = network(torch.from_numpy(images).to(reference)).float().cpu().numpy()
        found = run(images)
        if expected.shape != found.shape or not np.isfinite(expected).all():
            raise UserError(f"this network's outputs, of shape {expected.shape}, cannot be written as ONNX")
        if float(np.abs(expected - found).max()) > TOLERANCE * (float(np.abs(expected).max()) + 0.01):
            raise UserError("ONNX Runtime computes something else from this network than PyTorch: it was not written")


@dataclass
class _Model:
    """The ONNX graph so far; ``names`` holds what each value of ours is called there."""

    names: list[str] = field(default_factory=lambda: ["input"])
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def weight(self, value: Tensor | np.ndarray[Any, Any]) -> str:
        """A constant; its name."""
        array = value.detach().float().cpu().numpy() if isinstance(value, Tensor) else value
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def node(self, kind: str, *inputs: str, **options: Any) -> str:
        """One node; the name of its result."""
        name = f"value_{len(self.nodes)}"
        self.nodes.append(
            onnx.helper.make_node(kind, list(inputs), [name], name=f"{kind}_{len(self.nodes)}", **options)
        )
        return name


def _model(graph: Graph, shape: Shape) -> onnx.ModelProto:
    model = _Model()
    with torch.no_grad():
        parameters = [
            value for node in graph.nodes for value in vars(node.operation).values() if isinstance(value, Tensor)
        ]
        reference = parameters[0] if parameters else torch.zeros(())
        shapes = [tuple(value.shape[1:]) for value in graph.values(torch.zeros(1, *shape).to(reference))]
    for node in graph.nodes:
        write = OPERATIONS.get(type(node.operation))
        if write is None:
            raise UserError(f"cannot write {type(node.operation).__name__} (layer '{node.name}') as ONNX")
        inputs = [model.names[source] for source in node.inputs]
        model.names.append(write(model, node.operation, inputs, shapes[node.inputs[0]]))
    model.nodes.append(onnx.helper.make_node("Identity", [model.names[-1]], ["output"], name="output"))
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", *lengths])
        for name, lengths in (("input", shape), ("output", shapes[-1]))
    ]
    built = onnx.helper.make_graph(model.nodes, "steadynet", ends[:1], ends[1:], model.weights)
    return onnx.helper.make_model(
        built, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="steadynet"
    )


def _dense(model: _Model, operation: Dense, inputs: list[str], shape: Shape) -> str:
    bias = [] if operation.bias is None else [model.weight(operation.bias)]
    if len(shape) == 1:
        return model.node("Gemm", *inputs, model.weight(operation.weight), *bias, transB=1)
    product = model.node("MatMul", *inputs, model.weight(operation.weight.t()))
    return model.node("Add", product, *bias) if bias else product


def _convolution(model: _Model, operation: Convolution, inputs: list[str], shape: Shape) -> str:
    bias = [] if operation.bias is None else [model.weight(operation.bias)]
    return model.node(
        "Conv", *inputs, model.weight(operation.weight), *bias,
        kernel_shape=list(operation.weight.shape[2:]), strides=operation.stride, pads=operation.padding * 2,
        dilations=operation.dilation, group=operation.groups,
    )  # fmt: skip


def _scale(model: _Model, operation: Scale, inputs: list[str], shape: Shape) -> str:
    (name,) = inputs
    if bool((operation.factor != 1).any()):
        name = model.node("Mul", name, model.weight(operation.factor))
    if bool((operation.shift != 0).any()):
        name = model.node("Add", name, model.weight(operation.shift))
    return name


def _rectifier(model: _Model, operation: Rectifier, inputs: list[str], shape: Shape) -> str:
    return model.node("LeakyRelu", *inputs, alpha=operation.slope) if operation.slope else model.node("Relu", *inputs)


def _reshape(model: _Model, operation: Reshape, inputs: list[str], shape: Shape) -> str:
    if len(operation.shape) == 1:
        return model.node("Flatten", *inputs, axis=1)
    return model.node("Reshape", *inputs, model.weight(np.array([-1, *operation.shape], dtype=np.int64)))


def _pad(model: _Model, operation: Pad, inputs: list[str], shape: Shape) -> str:
    before, after = ([0, *(width[side] for width in operation.widths)] for side in (0, 1))
    return model.node("Pad", *inputs, model.weight(np.array([*before, *after], dtype=np.int64)))


def _max_pool(model: _Model, operation: MaxPool, inputs: list[str], shape: Shape) -> str:
    dilation = _pair(operation.options, "dilation", (1, 1))
    return model.node("MaxPool", *inputs, dilations=dilation, **_window(operation.options))


def _average_pool(model: _Model, operation: AveragePool, inputs: list[str], shape: Shape) -> str:
    options = operation.options
    counted, divisor = bool(options.get("count_include_pad", True)), options.get("divisor_override")
    name = model.node("AveragePool", *inputs, count_include_pad=int(counted), **_window(options))
    if divisor is None:
        return name
    kernel = _pair(options, "kernel_size", (1, 1))
    return model.node("Mul", name, model.weight(np.array(kernel[0] * kernel[1] / divisor, dtype=np.float32)))


def _window(options: dict[str, Any]) -> dict[str, Any]:
    kernel = _pair(options, "kernel_size", (1, 1))
    stride, padding = _pair(options, "stride", kernel), _pair(options, "padding", (0, 0))
    ceil = int(bool(options.get("ceil_mode", False)))
    return {"kernel_shape": kernel, "strides": stride, "pads": padding * 2, "ceil_mode": ceil}


def _pair(options: dict[str, Any], name: str, default: tuple[int, int]) -> tuple[int, int]:
    value = options.get(name)
    value = default if value is None or value == [] else value
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


# operation -> what it is in ONNX: (model, operation, names of the inputs, shape of the first) -> name of the result
OPERATIONS: dict[type[Operation], Callable[[_Model, Any, list[str], Shape], str]] = {
    Dense: _dense,
    Convolution: _convolution,
    Scale: _scale,
    Rectifier: _rectifier,
    Sum: lambda model, operation, inputs, shape: model.node("Add", *inputs),
    Concat: lambda model, operation, inputs, shape: model.node(
        "Concat", *inputs, axis=operation.axis % (len(shape) + 1)
    ),
    Reshape: _reshape,
    Permute: lambda model, operation, inputs, shape: model.node(
        "Transpose", *inputs, perm=[0, *(axis + 1 for axis in operation.order)]
    ),
    Pad: _pad,
    Take: lambda model, operation, inputs, shape: model.node(
        "Gather", *inputs, model.weight(np.array(operation.positions, dtype=np.int64)), axis=operation.axis
    ),
    AveragePool: _average_pool,
    MaxPool: _max_pool,
}
