"""Networks into ONNX files. What is written is the graph that bounds are computed on, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from steadynet.errors import UserError, one_line
from steadynet.files import write_atomically
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Dense, Operation, ReLU, Scale, Shape, Sum
from steadynet.graph.pooling import AveragePool, MaxPool
from steadynet.graph.rearrangements import Concat, Pad, Permute, Reshape, Take
from steadynet.graph.s_shaped import SShaped
from steadynet.graph.trace import some_weight
from steadynet.graph.translate import graph_of
from steadynet.interchange.onnx.comparison import example_images, runtime_deviation
from steadynet.interchange.onnx.files import PRECISIONS
from steadynet.interchange.onnx.node import Array
from steadynet.interchange.onnx.runtime import runtime_tensors

OPSET, IR_VERSION = 17, 8  # old enough for every tool, new enough for every operation
Attribute = int | float | Sequence[int]


def export_onnx(network: nn.Module, image_shape: Shape, path: str | Path) -> None:
    """Write a network, in evaluation mode and for any batch size, as an ONNX file of its own precision.

    The file is written after ONNX Runtime has computed the same as the network's graph on random images, layer by layer
    and number by number, each within its own rounding. An existing file is replaced.

    Args:
        network: A network whose operations have known bounds. Its mode and weights are left as they are.
        image_shape: The shape of one input, without the batch axis.
        path: The file to write.

    Raises:
        UserError: The network contains an operation that cannot be written, ONNX Runtime computes something else, or
            the file cannot be written. An existing file is then left as it was.

    >>> from tempfile import TemporaryDirectory
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU())
    >>> with TemporaryDirectory() as folder:
    ...     export_onnx(network, (1, 2, 2), f"{folder}/model.onnx")
    ...     [node.op_type for node in onnx.load(f"{folder}/model.onnx").graph.node]
    ['Flatten', 'Gemm', 'Relu', 'Identity']
    """
    path, shape = Path(path), tuple(image_shape)
    graph, dtype = graph_of(network, shape), some_weight(network).dtype
    written = _write(graph, shape, dtype)
    model = written.model
    try:
        onnx.checker.check_model(model, full_check=True)
        _check_agreement(graph.converted(lambda tensor: tensor.detach().cpu()), written, example_images(shape, dtype))
    except UserError:
        raise
    except Exception as error:  # the checker and ONNX Runtime have no common base class of errors
        raise UserError(f"cannot write {path}: ONNX does not accept this network: {one_line(error)}") from error
    write_atomically(path, lambda temporary: temporary.write_bytes(model.SerializeToString()))


def onnx_model(network: nn.Module, image_shape: Shape) -> onnx.ModelProto:
    """Return a network, in evaluation mode and for any batch size, as an ONNX model that nothing has checked yet.

    Raises:
        UserError: The network contains an operation that cannot be written.
    """
    shape = tuple(image_shape)
    return _write(graph_of(network, shape), shape, some_weight(network).dtype).model


def _check_agreement(graph: Graph, written: _Written, images: Array) -> None:
    run = runtime_tensors(written.model, written.tensors)
    with torch.no_grad():
        deviation = runtime_deviation(graph, images, written.tensors, lambda image: run(image[None]))
        outputs = graph.values(torch.from_numpy(images[:2]))[-1]
    if deviation is not None and deviation.overflows:
        raise UserError(f"this network overflows, so it was not written: {deviation}")
    if deviation is not None:
        raise UserError(
            f"ONNX Runtime computes something else than PyTorch, so the network was not written: {deviation}"
        )
    found = run(images[:2])["output"]  # the file must take batches, too
    if found.shape != tuple(outputs.shape):
        raise UserError(f"this network's outputs, of shape {tuple(outputs.shape)}, cannot be written as ONNX")


@dataclass
class _OnnxGraph:
    """The ONNX graph so far; ``names[i]`` is the ONNX name of value i of the steadynet graph."""

    dtype: torch.dtype
    names: list[str] = field(default_factory=lambda: ["input"])
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def add_weight(self, tensor: Tensor) -> str:
        """Add a constant in the precision of the network; return its name."""
        return self._add_constant(tensor.detach().to("cpu", self.dtype).numpy())

    def add_integers(self, numbers: Sequence[int]) -> str:
        """Add a list of integers as a constant; return its name."""
        return self._add_constant(np.array(numbers, dtype=np.int64))

    def _add_constant(self, array: Array) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def add_node(self, op_type: str, *inputs: str, **attributes: Attribute) -> str:
        """Add a node; return the name of its result."""
        name = f"value_{len(self.nodes)}"
        node = onnx.helper.make_node(op_type, list(inputs), [name], name=f"{op_type}_{len(self.nodes)}")
        node.attribute.extend(onnx.helper.make_attribute(*attribute) for attribute in sorted(attributes.items()))
        self.nodes.append(node)
        return name


class _Written(NamedTuple):
    """A model, and the position in the graph of the value that each of its named tensors is."""

    model: onnx.ModelProto
    tensors: dict[str, int]


def _write(graph: Graph, shape: Shape, dtype: torch.dtype) -> _Written:
    onnx_graph = _OnnxGraph(dtype)
    shapes = _value_shapes(graph, shape)
    for node in graph.nodes:
        write = OPERATIONS.get(type(node.operation))
        if write is None:
            raise UserError(f"cannot write {type(node.operation).__name__} (layer '{node.name}') as ONNX")
        inputs = [onnx_graph.names[source] for source in node.inputs]
        onnx_graph.names.append(write(onnx_graph, node.operation, inputs, shapes[node.inputs[0]]))
    onnx_graph.nodes.append(onnx.helper.make_node("Identity", [onnx_graph.names[-1]], ["output"], name="output"))
    kind = next(kind for kind, precision in PRECISIONS.items() if precision == dtype)
    ends = [
        onnx.helper.make_tensor_value_info(name, kind, ["batch", *lengths])
        for name, lengths in (("input", shape), ("output", shapes[-1]))
    ]
    built = onnx.helper.make_graph(onnx_graph.nodes, "steadynet", ends[:1], ends[1:], onnx_graph.weights)
    model = onnx.helper.make_model(
        built, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="steadynet"
    )
    # where an operation does nothing, two values have one name
    tensors = {name: position for position, name in enumerate(onnx_graph.names) if position} | {"output": graph.output}
    return _Written(model, {name: position for name, position in tensors.items() if name != "input"})


def _value_shapes(graph: Graph, shape: Shape) -> list[Shape]:
    """Return the shape of every value of a graph, without the batch axis."""
    parameters = [value for node in graph.nodes for value in vars(node.operation).values() if isinstance(value, Tensor)]
    reference = parameters[0] if parameters else torch.zeros(())
    with torch.no_grad():
        return [tuple(value.shape[1:]) for value in graph.values(torch.zeros(1, *shape).to(reference))]


def _dense(graph: _OnnxGraph, operation: Dense, inputs: list[str], shape: Shape) -> str:
    bias = [] if operation.bias is None else [graph.add_weight(operation.bias)]
    if len(shape) == 1:
        return graph.add_node("Gemm", *inputs, graph.add_weight(operation.weight), *bias, transB=1)
    product = graph.add_node("MatMul", *inputs, graph.add_weight(operation.weight.t()))
    return graph.add_node("Add", product, *bias) if bias else product


def _convolution(graph: _OnnxGraph, operation: Convolution, inputs: list[str], shape: Shape) -> str:
    bias = [] if operation.bias is None else [graph.add_weight(operation.bias)]
    return graph.add_node(
        "Conv", *inputs, graph.add_weight(operation.weight), *bias,
        kernel_shape=list(operation.weight.shape[2:]), strides=operation.stride, pads=operation.padding * 2,
        dilations=operation.dilation, group=operation.groups,
    )  # fmt: skip


def _scale(graph: _OnnxGraph, operation: Scale, inputs: list[str], shape: Shape) -> str:
    (name,) = inputs
    if bool((operation.factor != 1).any()):
        name = graph.add_node("Mul", name, graph.add_weight(operation.factor))
    if bool((operation.shift != 0).any()):
        name = graph.add_node("Add", name, graph.add_weight(operation.shift))
    return name


def _relu(graph: _OnnxGraph, operation: ReLU, inputs: list[str], shape: Shape) -> str:
    if operation.slope:
        return graph.add_node("LeakyRelu", *inputs, alpha=operation.slope)
    return graph.add_node("Relu", *inputs)


def _s_shaped(graph: _OnnxGraph, operation: SShaped, inputs: list[str], shape: Shape) -> str:
    return graph.add_node("Sigmoid" if operation.function == "sigmoid" else "Tanh", *inputs)


def _sum(graph: _OnnxGraph, operation: Sum, inputs: list[str], shape: Shape) -> str:
    return graph.add_node("Add", *inputs)


def _concat(graph: _OnnxGraph, operation: Concat, inputs: list[str], shape: Shape) -> str:
    return graph.add_node("Concat", *inputs, axis=operation.axis % (len(shape) + 1))


def _reshape(graph: _OnnxGraph, operation: Reshape, inputs: list[str], shape: Shape) -> str:
    if len(operation.shape) == 1:
        return graph.add_node("Flatten", *inputs, axis=1)
    return graph.add_node("Reshape", *inputs, graph.add_integers([-1, *operation.shape]))


def _permute(graph: _OnnxGraph, operation: Permute, inputs: list[str], shape: Shape) -> str:
    return graph.add_node("Transpose", *inputs, perm=[0, *(axis + 1 for axis in operation.order)])


def _pad(graph: _OnnxGraph, operation: Pad, inputs: list[str], shape: Shape) -> str:
    before, after = ([0, *(width[side] for width in operation.widths)] for side in (0, 1))
    return graph.add_node("Pad", *inputs, graph.add_integers([*before, *after]))


def _take(graph: _OnnxGraph, operation: Take, inputs: list[str], shape: Shape) -> str:
    return graph.add_node("Gather", *inputs, graph.add_integers(operation.positions), axis=operation.axis)


def _max_pool(graph: _OnnxGraph, operation: MaxPool, inputs: list[str], shape: Shape) -> str:
    return graph.add_node(
        "MaxPool", *inputs,
        kernel_shape=operation.kernel, strides=operation.stride, pads=operation.padding * 2,
        dilations=operation.dilation, ceil_mode=int(operation.ceil_mode),
    )  # fmt: skip


def _average_pool(graph: _OnnxGraph, operation: AveragePool, inputs: list[str], shape: Shape) -> str:
    name = graph.add_node(
        "AveragePool", *inputs,
        kernel_shape=operation.kernel, strides=operation.stride, pads=operation.padding * 2,
        ceil_mode=int(operation.ceil_mode), count_include_pad=int(operation.count_include_pad),
    )  # fmt: skip
    if operation.divisor is None:
        return name
    factor = operation.kernel[0] * operation.kernel[1] / operation.divisor
    return graph.add_node("Mul", name, graph.add_weight(torch.tensor(factor)))


# operation -> (ONNX graph, operation, names of the inputs, shape of the first input) -> name of the result
OPERATIONS: dict[type[Operation], Callable[[_OnnxGraph, Any, list[str], Shape], str]] = {
    Dense: _dense,
    Convolution: _convolution,
    Scale: _scale,
    ReLU: _relu,
    SShaped: _s_shaped,
    Sum: _sum,
    Concat: _concat,
    Reshape: _reshape,
    Permute: _permute,
    Pad: _pad,
    Take: _take,
    AveragePool: _average_pool,
    MaxPool: _max_pool,
}
