"""Constants of an ONNX file, and what it computes from constants alone: shapes, slices, transposed weights."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import GraphBuilder
from steadynet.interchange.onnx.node import Array, Attributes

FOLDABLE = {
    "Add", "Cast", "Concat", "ConstantOfShape", "Div", "Flatten", "Gather", "Identity", "Mul", "Neg", "ReduceProd",
    "Reshape", "Slice", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
}  # fmt: skip
_BROADCASTING = {"Add", "Div", "Mul", "Sub"}


def constant_value(attributes: Attributes) -> Array:
    """Return the tensor of a Constant node."""
    tensor = attributes.tensor("value")
    if tensor is not None:
        return numpy_helper.to_array(tensor)
    if "value_float" in attributes:
        return np.array(attributes.number("value_float", 0.0), dtype=np.float32)
    if "value_int" in attributes:
        return np.array(attributes.integer("value_int", 0), dtype=np.int64)
    floats, integers = attributes.numbers("value_floats"), attributes.integers("value_ints")
    if floats is not None:
        return np.array(floats, dtype=np.float32)
    if integers is not None:
        return np.array(integers, dtype=np.int64)
    raise UnsupportedError("a constant that is not a tensor of numbers")


def shape_value(shape: tuple[int, ...], attributes: Attributes) -> Array:
    """Return the result of a Shape node: the lengths of a tensor's axes, or of some of them."""
    start, end = attributes.integer("start", 0), attributes.integer("end", len(shape))
    return np.array(shape[start:end], dtype=np.int64)


def fold(node: onnx.NodeProto, inputs: list[Array | None], opset: int, builder: GraphBuilder) -> Array:
    """Compute the result of a node whose inputs are all constant, with ONNX's reference implementation."""
    if node.op_type not in FOLDABLE:
        raise UnsupportedError(f"{node.op_type} of constants")
    given = {name: value for name, value in zip(node.input, inputs, strict=True) if value is not None}
    builder.reserve(_result_size_limit(node.op_type, list(given.values())))
    untyped = onnx.TypeProto()
    graph = onnx.helper.make_graph(
        [node],
        "constant",
        [onnx.helper.make_value_info(name, untyped) for name in given],
        [onnx.helper.make_value_info(node.output[0], untyped)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        (result,) = ReferenceEvaluator(model).run(None, given)
    return np.asarray(result)


def _result_size_limit(op_type: str, inputs: list[Array]) -> int:
    """Return an upper bound on how many numbers the result has, before it is computed."""
    if op_type in _BROADCASTING:
        return math.prod(np.broadcast_shapes(*(value.shape for value in inputs)))
    if op_type == "ConstantOfShape":
        return math.prod(max(0, int(length)) for length in inputs[0].reshape(-1))
    if op_type == "Gather":
        return math.prod(inputs[0].shape) * max(1, math.prod(inputs[1].shape))
    return sum(value.size for value in inputs)
