"""What a file computes from constants alone, computed once: shapes, slices, weights that are turned around."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import Array, Builder

FOLDED = {
    "Add", "Cast", "Concat", "ConstantOfShape", "Div", "Flatten", "Gather", "Identity", "Mul", "Neg", "ReduceProd",
    "Reshape", "Slice", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
}  # fmt: skip
_SPREADING = {"Add", "Div", "Mul", "Sub"}
_PLAIN = ("value_float", "value_int", "value_floats", "value_ints")


def constant_of(options: dict[str, Any]) -> Array:
    """The tensor of a Constant node."""
    if isinstance(options.get("value"), onnx.TensorProto):
        return numpy_helper.to_array(options["value"])
    for name in _PLAIN:
        if name in options:
            return np.array(options[name], dtype=np.float32 if "float" in name else np.int64)
    raise UnsupportedError("a constant that is no tensor of numbers")


def shape_of(shape: tuple[int, ...], options: dict[str, Any]) -> Array:
    """Shape: the lengths of a tensor's axes, or some of them."""
    return np.array(shape[slice(options.get("start", 0), options.get("end"))], dtype=np.int64)


def folded(node: onnx.NodeProto, inputs: list[Array | None], opset: int, builder: Builder) -> Array:
    """The result of a node whose inputs are all constant, by ONNX's own reference."""
    if node.op_type not in FOLDED:
        raise UnsupportedError(f"{node.op_type} of constants")
    given = {name: value for name, value in zip(node.input, inputs, strict=True) if value is not None}
    builder.spend(_most_numbers(node.op_type, list(given.values())))
    empty = onnx.TypeProto()
    graph = onnx.helper.make_graph(
        [node],
        "constant",
        [onnx.helper.make_value_info(name, empty) for name in given],
        [onnx.helper.make_value_info(node.output[0], empty)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        (result,) = ReferenceEvaluator(model).run(None, given)
    return np.asarray(result)


def _most_numbers(kind: str, inputs: list[Array]) -> int:
    """How many numbers a result can have: at most so many, before it is computed."""
    if kind in _SPREADING:
        return math.prod(np.broadcast_shapes(*(value.shape for value in inputs)))
    if kind == "ConstantOfShape":
        return math.prod(max(0, int(length)) for length in inputs[0].reshape(-1))
    if kind == "Gather":
        return math.prod(inputs[0].shape) * max(1, math.prod(inputs[1].shape))
    return sum(value.size for value in inputs)
