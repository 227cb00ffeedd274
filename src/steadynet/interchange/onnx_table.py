"""What each operator of ONNX becomes: the table that the reader looks things up in."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx
import torch

from steadynet.bounds.operations import Concat, Dense, Pad, Rectifier, Sum
from steadynet.interchange.onnx_calls import Builder, Call, UnreadableError, Value, floats, front, held
from steadynet.interchange.onnx_windows import average_pool, convolution, global_average_pool, max_pool

_UNBOUNDED = 3.4e38  # older versions write float32's largest number for no bound


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
        raise UnreadableError("arithmetic that broadcasts data")
    return builder.add(Sum(), shape, builder.reshaped(left, shape), builder.reshaped(right, shape))


def _multiply(call: Call, builder: Builder) -> Value:
    left, right = call.input(0), call.input(1)
    if isinstance(left, Value) and isinstance(right, Value):
        raise UnreadableError("a product of data")
    source, factor = (left, call.weights(1)) if isinstance(left, Value) else (call.data(1), call.weights(0))
    return builder.scaled(source, factor, torch.tensor(0.0))


def _divide(call: Call, builder: Builder) -> Value:
    divisor = call.weights(1)
    factor = 1 / divisor
    if not bool(factor.isfinite().all()):
        raise UnreadableError("a division by zero")
    return builder.scaled(call.data(0), factor, torch.tensor(0.0))


def _gemm(call: Call, builder: Builder) -> Value:
    source, weight = call.data(0), call.weights(1)
    if len(source.shape) != 2 or weight.dim() != 2:
        raise UnreadableError("Gemm of tensors that are no matrices")
    source = builder.permuted(source, [1, 0]) if call.options.get("transA", 0) else source
    weight = weight if call.options.get("transB", 0) else weight.t()
    weight = weight * float(call.options.get("alpha", 1.0))
    result = _dense(builder, source, weight.contiguous())
    if call.input(2) is None:
        return result
    return builder.scaled(result, torch.tensor(1.0), call.weights(2) * float(call.options.get("beta", 1.0)))


def _multiply_matrices(call: Call, builder: Builder) -> Value:
    left, right = call.input(0), call.input(1)
    if isinstance(left, Value):
        weight = call.weights(1)
        if weight.dim() != 2:
            raise UnreadableError("MatMul with a constant that is no matrix")
        return _dense(builder, left, weight.t().contiguous())
    source, weight = call.data(1), call.weights(0)
    if weight.dim() != 2 or not isinstance(right, Value):
        raise UnreadableError("MatMul with a constant that is no matrix")
    axes = list(range(len(source.shape)))
    if len(axes) == 1:
        return _dense(builder, source, weight)
    turned = [*axes[:-2], axes[-1], axes[-2]]
    return builder.permuted(_dense(builder, builder.permuted(source, turned), weight), turned)


def _dense(builder: Builder, source: Value, weight: torch.Tensor) -> Value:
    if not source.shape or source.shape[-1] != weight.shape[1]:
        raise UnreadableError(f"a matrix of shape {tuple(weight.shape)} on data of shape {source.shape}")
    return builder.add(Dense(weight, None), (*source.shape[:-1], weight.shape[0]), source)


def _batch_norm(call: Call, builder: Builder) -> Value:
    source = call.data()
    if call.options.get("training_mode", 0) or not call.options.get("spatial", 1):
        raise UnreadableError("BatchNormalization that is not the one of evaluation")
    scale, bias, mean, variance = (call.weights(index) for index in (1, 2, 3, 4))
    factor = scale / torch.sqrt(variance + float(call.options.get("epsilon", 1e-5)))
    shift = bias - mean * factor
    if len(source.shape) < 2 or not bool((factor.isfinite() & shift.isfinite()).all()):
        raise UnreadableError("BatchNormalization without channels or deviation")
    per_channel = (-1, *[1] * (len(source.shape) - 2))
    return builder.scaled(source, factor.view(per_channel), shift.view(per_channel))


def _relu(call: Call, builder: Builder) -> Value:
    return builder.add(Rectifier(), call.data().shape, call.data())


def _leaky_relu(call: Call, builder: Builder) -> Value:
    slope = float(call.options.get("alpha", 0.01))
    if not 0 <= slope <= 1:
        raise UnreadableError(f"LeakyRelu with slope {slope}, which is not between 0 and 1")
    return builder.add(Rectifier(slope), call.data().shape, call.data())


def _clip(call: Call, builder: Builder) -> Value:
    lower, upper = call.constant(1), call.constant(2)
    least = float(call.options.get("min", -math.inf if lower is None else lower.reshape(())))
    most = float(call.options.get("max", math.inf if upper is None else upper.reshape(())))
    if least != 0 or not most >= _UNBOUNDED:
        raise UnreadableError(f"Clip to [{least:g}, {most:g}], which is no ReLU")
    return _relu(call, builder)


def _same(call: Call, builder: Builder) -> Value:
    return call.data()


def _dropout(call: Call, builder: Builder) -> Value:
    training = call.constant(2)
    if training is not None and bool(training.any()):
        raise UnreadableError("Dropout in training mode")
    return call.data()


def _cast(call: Call, builder: Builder) -> Value:
    if call.options.get("to") != onnx.TensorProto.FLOAT:
        raise UnreadableError("a cast of data to another type than float")
    return call.data()


def _flatten(call: Call, builder: Builder) -> Value:
    source = call.data()
    axis = int(call.options.get("axis", 1))
    axis = len(source.shape) if axis == len(source.shape) else front(axis, len(source.shape))
    return builder.reshaped(source, (math.prod(source.shape[:axis]), math.prod(source.shape[axis:])))


def _reshape(call: Call, builder: Builder) -> Value:
    source, wanted = call.data(), call.integers("shape", 1)
    if wanted is None or (call.options.get("allowzero", 0) and 0 in wanted):
        raise UnreadableError("a reshape without a shape")
    if any(length == 0 and axis >= len(source.shape) for axis, length in enumerate(wanted)):
        raise UnreadableError(f"a reshape of {source.shape} to {wanted}")
    shape = [length or source.shape[axis] for axis, length in enumerate(wanted)]
    if -1 in shape:
        rest = math.prod(length for length in shape if length != -1)
        shape[shape.index(-1)] = math.prod(source.shape) // rest if rest > 0 else 0
    if any(length < 1 for length in shape):
        raise UnreadableError(f"a reshape of {source.shape} to {wanted}")
    return builder.reshaped(source, tuple(shape))


def _transpose(call: Call, builder: Builder) -> Value:
    axes = len(call.data().shape)
    return builder.permuted(call.data(), call.integers("perm") or list(reversed(range(axes))))


def _squeeze(call: Call, builder: Builder) -> Value:
    source, axes = call.data(), call.integers("axes", 1)
    count = len(source.shape)
    chosen = (
        {front(axis, count) for axis in axes} if axes is not None else {i for i in range(count) if source.shape[i] == 1}
    )
    return builder.reshaped(source, tuple(length for axis, length in enumerate(source.shape) if axis not in chosen))


def _unsqueeze(call: Call, builder: Builder) -> Value:
    source, axes = call.data(), call.integers("axes", 1) or []
    count = len(source.shape) + len(axes)
    chosen = {front(axis, count) for axis in axes}
    if len(chosen) != len(axes) or count > 8:
        raise UnreadableError(f"Unsqueeze with axes {axes}")
    rest = iter(source.shape)
    return builder.reshaped(source, tuple(1 if axis in chosen else next(rest) for axis in range(count)))


def _concat(call: Call, builder: Builder) -> Value:
    parts = [call.data(index) for index in range(len(call.inputs))]
    axis = call.axis(1, len(parts[0].shape))
    whole = list(parts[0].shape)
    dropped = len(whole) - len(held(parts[0].shape))
    rest = [(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts]
    if any(shape != rest[0] for shape in rest) or axis < dropped or any(len(p.shape) != len(whole) for p in parts):
        raise UnreadableError("a concatenation of these shapes along this axis")
    if axis == 0 and any(held(part.shape) != part.shape for part in parts):
        raise UnreadableError("a concatenation along the batch axis")
    whole[axis] = sum(part.shape[axis] for part in parts)
    return builder.add(Concat(axis + 1 - dropped), tuple(whole), *parts)


def _pad(call: Call, builder: Builder) -> Value:
    source, pads, value = call.data(), call.integers("pads", 1), call.constant(2)
    number = float(call.options.get("value", 0.0)) if value is None else float(floats(value).reshape(()))
    if call.options.get("mode", b"constant") != b"constant" or number != 0:
        raise UnreadableError("padding with something else than zeros")
    count = len(source.shape)
    axes = [front(axis, count) for axis in call.integers("axes", 3) or range(count)]
    if pads is None or len(pads) != 2 * len(axes) or min(pads) < 0 or len(set(axes)) < len(axes):
        raise UnreadableError(f"pads {pads}")
    widths = {axis: (pads[index], pads[index + len(axes)]) for index, axis in enumerate(axes)}
    every = [widths.get(axis, (0, 0)) for axis in range(count)]
    dropped = count - len(held(source.shape))
    if any(every[axis] != (0, 0) for axis in range(dropped)):
        raise UnreadableError("padding of the batch axis")
    shape = tuple(length + sum(width) for length, width in zip(source.shape, every, strict=True))
    return source if shape == source.shape else builder.add(Pad(tuple(every[dropped:])), shape, source)


OPERATORS: dict[str, Callable[[Call, Builder], Value]] = {
    "Add": _add,
    "AveragePool": average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": convolution,
    "Div": _divide,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": global_average_pool,
    "Identity": _same,
    "LeakyRelu": _leaky_relu,
    "MatMul": _multiply_matrices,
    "MaxPool": max_pool,
    "Mul": _multiply,
    "Pad": _pad,
    "Relu": _relu,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Sub": _subtract,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}  # fmt: skip
