"""What each operator of ONNX becomes: the table that the reader looks things up in."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx
import torch

from steadynet.graph.clipping import clipping
from steadynet.graph.operations import Dense, Operation, Rectifier, Scale, Sum
from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import Builder, Call, Value, floats, front
from steadynet.interchange.onnx.operators.convolution_and_pooling import (
    average_pool,
    convolution,
    global_average_pool,
    max_pool,
)
from steadynet.interchange.onnx.operators.shapes import (
    concatenate,
    flatten,
    gather,
    pad,
    reshape,
    split,
    squeeze,
    take_slice,
    transpose,
    unsqueeze,
)

_UNBOUNDED = 3.4e38  # older versions write float32's largest number for no bound
_ZERO = torch.tensor(0.0)


def _add(call: Call, builder: Builder) -> Value:
    left, right = call.input(0), call.input(1)
    if isinstance(left, Value) and isinstance(right, Value):
        return _sum(builder, left, right)
    source, constant = (left, call.weights(1)) if isinstance(left, Value) else (call.data(1), call.weights(0))
    return builder.scaled(source, torch.tensor(1.0), constant)


def _subtract(call: Call, builder: Builder) -> Value:
    left, right = call.input(0), call.input(1)
    if isinstance(left, Value) and isinstance(right, Value):
        return _sum(builder, left, builder.scaled(right, torch.tensor(-1.0), torch.tensor(0.0)))
    if isinstance(left, Value):
        return builder.scaled(left, torch.tensor(1.0), -call.weights(1))
    return builder.scaled(call.data(1), torch.tensor(-1.0), call.weights(0))


def _sum(builder: Builder, left: Value, right: Value) -> Value:
    shape = tuple(torch.broadcast_shapes(left.shape, right.shape))
    if not math.prod(shape) == math.prod(left.shape) == math.prod(right.shape):
        raise UnsupportedError("arithmetic that broadcasts data")
    return builder.add(Sum(), shape, builder.reshaped(left, shape), builder.reshaped(right, shape))


def _add_all(call: Call, builder: Builder) -> Value:
    """Sum, of any number of tensors: the constants last."""
    data = [part for part in call.inputs if isinstance(part, Value)]
    result = data[0]
    for part in data[1:]:
        result = _sum(builder, result, part)
    for constant in (part for part in call.inputs if not isinstance(part, Value) and part is not None):
        result = builder.scaled(result, torch.tensor(1.0), floats(constant))
    return result


def _multiply(call: Call, builder: Builder) -> Value:
    left, right = call.input(0), call.input(1)
    if isinstance(left, Value) and isinstance(right, Value):
        raise UnsupportedError("a product of data")
    source, factor = (left, call.weights(1)) if isinstance(left, Value) else (call.data(1), call.weights(0))
    return builder.scaled(source, factor, torch.tensor(0.0))


def _divide(call: Call, builder: Builder) -> Value:
    divisor = call.weights(1)
    factor = 1 / divisor
    if not bool(factor.isfinite().all()):
        raise UnsupportedError("a division by zero")
    return builder.scaled(call.data(0), factor, torch.tensor(0.0))


def _gemm(call: Call, builder: Builder) -> Value:
    left = isinstance(call.input(0), Value)  # data · weight; otherwise weight · data
    source, weight = (call.data(0), call.weights(1)) if left else (call.data(1), call.weights(0))
    if len(source.shape) != 2 or weight.dim() != 2:
        raise UnsupportedError("Gemm of tensors that are no matrices")
    of_source, of_weight = ("transA", "transB") if left else ("transB", "transA")
    source = builder.permuted(source, [1, 0]) if bool(call.options.get(of_source, 0)) == left else source
    weight = weight if bool(call.options.get(of_weight, 0)) == left else weight.t()
    weight = weight * float(call.options.get("alpha", 1.0))
    result = _dense(builder, source, weight.contiguous())
    result = result if left else builder.permuted(result, [1, 0])
    if call.input(2) is None:
        return result
    return builder.scaled(result, torch.tensor(1.0), call.weights(2) * float(call.options.get("beta", 1.0)))


def _multiply_matrices(call: Call, builder: Builder) -> Value:
    left, right = call.input(0), call.input(1)
    if isinstance(left, Value):
        weight = call.weights(1)
        if weight.dim() != 2:
            raise UnsupportedError("MatMul with a constant that is no matrix")
        return _dense(builder, left, weight.t().contiguous())
    source, weight = call.data(1), call.weights(0)
    if weight.dim() != 2 or not isinstance(right, Value):
        raise UnsupportedError("MatMul with a constant that is no matrix")
    axes = list(range(len(source.shape)))
    if len(axes) == 1:
        return _dense(builder, source, weight)
    turned = [*axes[:-2], axes[-1], axes[-2]]
    return builder.permuted(_dense(builder, builder.permuted(source, turned), weight), turned)


def _dense(builder: Builder, source: Value, weight: torch.Tensor) -> Value:
    if not source.shape or source.shape[-1] != weight.shape[1]:
        raise UnsupportedError(f"a matrix of shape {tuple(weight.shape)} on data of shape {source.shape}")
    return builder.add(Dense(weight, None), (*source.shape[:-1], weight.shape[0]), source)


def _batch_norm(call: Call, builder: Builder) -> Value:
    source = call.data()
    if call.options.get("training_mode", 0) or not call.options.get("spatial", 1):
        raise UnsupportedError("BatchNormalization that is not the one of evaluation")
    scale, bias, mean, variance = (call.weights(index) for index in (1, 2, 3, 4))
    factor = scale / torch.sqrt(variance + float(call.options.get("epsilon", 1e-5)))
    shift = bias - mean * factor
    if len(source.shape) < 2 or not bool((factor.isfinite() & shift.isfinite()).all()):
        raise UnsupportedError("BatchNormalization without channels or deviation")
    per_channel = (-1, *[1] * (len(source.shape) - 2))
    return builder.scaled(source, factor.view(per_channel), shift.view(per_channel))


def _relu(call: Call, builder: Builder) -> Value:
    return _rectified(builder, call.data())


def _leaky_relu(call: Call, builder: Builder) -> Value:
    slope = float(call.options.get("alpha", 0.01))
    if not 0 <= slope <= 1:
        raise UnsupportedError(f"LeakyRelu with slope {slope}, which is not between 0 and 1")
    return builder.add(Rectifier(slope), call.data().shape, call.data())


def _clip(call: Call, builder: Builder) -> Value:
    lower, upper = call.constant(1), call.constant(2)
    least = float(call.options.get("min", -math.inf if lower is None else lower.reshape(())))
    most = float(call.options.get("max", math.inf if upper is None else upper.reshape(())))
    if math.isnan(least) or math.isnan(most):
        raise UnsupportedError("Clip to bounds that are no numbers")
    least, most = (-math.inf if least <= -_UNBOUNDED else least), (math.inf if most >= _UNBOUNDED else most)
    if math.inf in (least, -most):
        raise UnsupportedError("Clip to infinity")
    result = call.data()
    for operation in clipping(least, most, torch.zeros(())):
        result = _chained(builder, operation, result)
    return result


def _chained(builder: Builder, operation: Operation, source: Value) -> Value:
    if isinstance(operation, Scale):
        return builder.scaled(source, operation.factor, operation.shift)
    return builder.add(operation, source.shape, source)


def _maximum(call: Call, builder: Builder) -> Value:
    """max(a, b) = b + relu(a − b), and min(a, b) = −max(−a, −b); b may be constant."""
    if len(call.inputs) != 2:
        raise UnsupportedError(f"{call.kind} of {len(call.inputs)} tensors, not of two")
    sign = torch.tensor(1.0 if call.kind == "Max" else -1.0)
    one, other = call.inputs if isinstance(call.input(0), Value) else reversed(call.inputs)
    if not isinstance(one, Value) or other is None:
        raise UnsupportedError("a missing input")
    if isinstance(other, Value):
        above = _sum(builder, builder.scaled(one, sign, _ZERO), builder.scaled(other, -sign, _ZERO))
        return _sum(builder, builder.scaled(_rectified(builder, above), sign, _ZERO), other)
    constant = floats(other)
    return builder.scaled(_rectified(builder, builder.scaled(one, sign, -sign * constant)), sign, constant)


def _rectified(builder: Builder, source: Value) -> Value:
    return builder.add(Rectifier(), source.shape, source)


def _negated(call: Call, builder: Builder) -> Value:
    return builder.scaled(call.data(), torch.tensor(-1.0), _ZERO)


def _reduced(call: Call, builder: Builder) -> Value:
    """ReduceSum and ReduceMean: a row of equal weights on the axes that go."""
    source, axes = call.data(), call.integers("axes", 1)
    count = len(source.shape)
    if not axes and call.options.get("noop_with_empty_axes", 0):
        return source
    gone = sorted({front(axis, count) for axis in axes} if axes else range(count))
    kept = [axis for axis in range(count) if axis not in gone]
    length = math.prod(source.shape[axis] for axis in gone)
    moved = builder.permuted(source, [*kept, *gone])
    moved = builder.reshaped(moved, (*(source.shape[axis] for axis in kept), length))
    total = _dense(builder, moved, torch.full((1, length), 1 / length if call.kind == "ReduceMean" else 1.0))
    keep = bool(call.options.get("keepdims", 1))
    shape = [1 if axis in gone else source.shape[axis] for axis in range(count) if keep or axis not in gone]
    return builder.reshaped(total, tuple(shape))


def _same(call: Call, builder: Builder) -> Value:
    return call.data()


def _dropout(call: Call, builder: Builder) -> Value:
    training = call.constant(2)
    if training is not None and bool(training.any()):
        raise UnsupportedError("Dropout in training mode")
    return call.data()


def _cast(call: Call, builder: Builder) -> Value:
    if call.options.get("to") != onnx.TensorProto.FLOAT:
        raise UnsupportedError("a cast of data to another type than float")
    return call.data()


# operator -> the value it makes; Split makes several
OPERATORS: dict[str, Callable[[Call, Builder], Value | list[Value]]] = {
    "Add": _add,
    "AveragePool": average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": concatenate,
    "Conv": convolution,
    "Div": _divide,
    "Dropout": _dropout,
    "Flatten": flatten,
    "Gather": gather,
    "Gemm": _gemm,
    "GlobalAveragePool": global_average_pool,
    "Identity": _same,
    "LeakyRelu": _leaky_relu,
    "MatMul": _multiply_matrices,
    "Max": _maximum,
    "MaxPool": max_pool,
    "Min": _maximum,
    "Mul": _multiply,
    "Neg": _negated,
    "Pad": pad,
    "ReduceMean": _reduced,
    "ReduceSum": _reduced,
    "Relu": _relu,
    "Reshape": reshape,
    "Slice": take_slice,
    "Split": split,
    "Squeeze": squeeze,
    "Sub": _subtract,
    "Sum": _add_all,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
