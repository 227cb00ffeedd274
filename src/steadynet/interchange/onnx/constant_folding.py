"""Constants of an ONNX file, and what it computes from constants alone: shapes, slices, transposed weights."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import GraphBuilder
from steadynet.interchange.onnx.node import Array, Attributes

FOLDABLE = {
    "Add", "Cast", "Concat", "ConstantOfShape", "Div", "Flatten", "Gather", "Identity", "Mul", "Neg", "ReduceProd",
    "Reshape", "Slice", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
}  # fmt: skip
_BROADCASTING = {"Add", "Div", "Mul", "Sub"}
_MOST_ROUNDINGS = 64  # of a constant that is computed from others


class Folded(NamedTuple):
    """A constant that is computed from others.

    Attributes:
        value: The constant, as ONNX's operators compute it.
        roundings: A bound of its relative error against exact arithmetic, in units of one rounding.
    """

    value: Array
    roundings: int


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


def fold(
    node: onnx.NodeProto, inputs: list[Array | None], roundings: tuple[int, ...], opset: int, builder: GraphBuilder
) -> Folded:
    """Compute the result of a node whose inputs are all constant, with ONNX's reference implementation.

    Args:
        node: The node.
        inputs: Its inputs; None where one is left out.
        roundings: How many roundings each input saw.
        opset: The version of the ONNX operators.
        builder: What counts the numbers in memory.

    Raises:
        UnsupportedError: The node cannot be folded, or its result has lost its digits: c + 2^27 − 2^27, say.
    """
    from onnx.reference import ReferenceEvaluator  # most files need none, and its import is slow

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
    value = np.asarray(result)
    count = _roundings(node.op_type, [part for part in inputs if part is not None], max(roundings, default=0), value)
    if count > _MOST_ROUNDINGS:
        raise UnsupportedError("constants that lose their digits when they are computed")
    return Folded(value, count)


def _roundings(op_type: str, inputs: list[Array], before: int, result: Array) -> int:
    """Bound the relative error of a folded constant, in units of one rounding, if its inputs saw ``before``."""
    if result.dtype.kind != "f":
        if before:
            raise UnsupportedError("integers that are computed from numbers that were rounded")
        return 0
    if op_type == "ReduceProd" and not before and bool((inputs[0] == np.round(inputs[0])).all()):
        return 0 if bool((np.abs(result) < 2**24).all()) else _MOST_ROUNDINGS + 1  # lengths of axes
    if op_type not in _BROADCASTING | {"Cast", "Sqrt", "ReduceProd"}:
        return before  # it only moves numbers, or changes their signs
    with np.errstate(all="ignore"):
        inexact = ~_is_exact(op_type, inputs, result)
        small = np.abs(result) < np.finfo(result.dtype).smallest_normal
        if op_type == "ReduceProd" or (op_type not in ("Add", "Sub") and bool((inexact & small).any())):
            return _MOST_ROUNDINGS + 1  # underflow takes more than a relative error; sums do not underflow
        return _inherited(op_type, inputs, before, result) + int(inexact.any())


def _is_exact(op_type: str, inputs: list[Array], result: Array) -> NDArray[np.bool_]:
    """Return where a result is that of exact arithmetic. Two numbers of float32 have an exact product in float64."""
    if op_type == "Cast":
        held = np.abs(inputs[0].astype(np.float64)) <= 2**53 if inputs[0].dtype.kind in "iu" else np.True_
        return np.asarray((inputs[0] == result) & held)
    one, other = inputs[0].astype(np.float64), inputs[-1].astype(np.float64)
    wide = any(part.dtype.itemsize > 4 for part in (*inputs, result))
    if op_type in ("Add", "Sub"):
        other = other if op_type == "Add" else -other
        total = one + other
        low = (one - (total - (total - one))) + (other - (total - one))  # what float64 rounded off the sum
        return np.asarray((total == result) & (low == 0))
    if op_type == "Mul":
        return np.asarray((one * other == result) & (not wide) | (one == 0) | (other == 0))
    divisor = other if op_type == "Div" else result  # Sqrt: a number divided by its root is the root
    return np.asarray((divisor * result.astype(np.float64) == one) & (not wide) | (one == 0))


def _inherited(op_type: str, inputs: list[Array], before: int, result: Array) -> int:
    """Bound the relative error that the inputs' own errors cause, in units of one rounding."""
    if not before:
        return 0
    if op_type in ("Add", "Sub"):
        sizes = np.abs(inputs[0].astype(np.float64)) + np.abs(inputs[1].astype(np.float64))
        ratio = np.divide(sizes, np.abs(result.astype(np.float64)))
        worst = float(np.max(np.where(sizes > 0, ratio, 1.0), initial=1.0))
        return math.ceil(before * worst * 1.01) if worst < _MOST_ROUNDINGS else _MOST_ROUNDINGS + 1
    return 2 * before + 1 if op_type in ("Mul", "Div") else before + 1


def _result_size_limit(op_type: str, inputs: list[Array]) -> int:
    """Return an upper bound on how many numbers the result has, before it is computed."""
    if op_type in _BROADCASTING:
        return math.prod(np.broadcast_shapes(*(value.shape for value in inputs)))
    if op_type == "ConstantOfShape":
        return math.prod(max(0, int(length)) for length in inputs[0].reshape(-1))
    if op_type == "Gather":
        return math.prod(inputs[0].shape) * max(1, math.prod(inputs[1].shape))
    return sum(value.size for value in inputs)
