"""ONNX operators with attributes and shapes that are easily misread, in networks that grow with every input.

The smallest score lies in the lower corner. ONNX Runtime computes it there, and the property asks whether it exceeds a
number a little below it, or above it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from steadynet.verification.self_test.known import ConstructionError, KnownInstance, Truth
from steadynet.verification.self_test.onnx_instance import ModelBuilder, file_instance, runtime
from steadynet.verification.self_test.random_numbers import integer, pick, power_of_ten, uniform

SHAPE = (1, 2, 4, 4)
# A thousandth of the score is more than all rounding. Where all numbers are positive, rounding changes at most 1e-4 of
# the score. The kinds that subtract (0-d tensors, batch norm) add 32 numbers of about 10, each of them off by 1e-6.
LEAST_SCORE = 0.5
Layers = Callable[[ModelBuilder], str]  # adds nodes to a builder and returns the name of their result


def positive(*shape: int) -> NDArray[np.float32]:
    """Draw positive weights."""
    return (torch.rand(shape) + 0.1).numpy()


def _zero_dimensional() -> Layers:
    """Arithmetic with tensors without axes, from both sides."""
    numbers = [uniform(0.5, 2.0) for _ in range(6)]

    def add(builder: ModelBuilder) -> str:
        shift, factor, divisor, minuend, low, high = (builder.constant(number) for number in numbers)
        value = builder.add("Add", shift, "input")
        value = builder.add("Div", builder.add("Mul", value, factor), divisor)
        value = builder.add("Sub", minuend, builder.add("Sub", minuend, value))
        value = builder.add("Max", value, builder.add("Mul", low, builder.constant(0.1)))
        value = builder.add("Min", value, builder.add("Add", high, builder.constant(20.0)))
        return builder.add("Clip", value, builder.constant(0.0), builder.constant(100.0))

    return add


def _gather_without_axes() -> Layers:
    """One channel by an index without axes, which removes the channel's axis."""
    channel = integer(-2, 1)
    return lambda builder: builder.add("Gather", "input", builder.constant(channel, np.int64), axis=1)


def _convolution() -> Layers:
    """Uneven padding, strides, dilations and groups."""
    weight, bias = positive(4, 1, 2, 2), positive(4)
    attributes = {
        "pads": [integer(0, 1) for _ in range(4)],
        "strides": [integer(1, 2), integer(1, 2)],
        "dilations": [integer(1, 2), integer(1, 2)],
    }
    return lambda builder: builder.add(
        "Conv", "input", builder.constant(weight), builder.constant(bias), group=2, kernel_shape=[2, 2], **attributes
    )


def _padded_automatically() -> Layers:
    """Padding that the runtime chooses: the odd row goes to the end or to the beginning."""
    weight, mode = positive(3, 2, 2, 3), pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
    return lambda builder: builder.add(
        "Conv", "input", builder.constant(weight), auto_pad=mode, kernel_shape=[2, 3], strides=[1, 1]
    )


def _average_pool() -> Layers:
    """Averages at the border, with and without the padding."""
    attributes = {"count_include_pad": integer(0, 1), "pads": [integer(0, 1) for _ in range(4)]}
    strides = [integer(1, 2), integer(1, 2)]
    return lambda builder: builder.add("AveragePool", "input", kernel_shape=[2, 2], strides=strides, **attributes)


def _max_pool() -> Layers:
    """Maxima of uneven windows, with a rest at the border."""
    choices: list[dict[str, object]] = [{"ceil_mode": 1}, {"pads": [0, 1, 0, 0]}, {"pads": [1, 0, 1, 1]}]
    attributes = pick(choices)
    return lambda builder: builder.add("MaxPool", "input", kernel_shape=[2, 3], strides=[2, 2], **attributes)


def _gemm() -> Layers:
    """alpha, beta, and a weight that is transposed or not."""
    transposed, factors = integer(0, 1), (uniform(0.2, 3.0), uniform(0.2, 3.0))
    weight, bias = positive(5, 32) if transposed else positive(32, 5), positive(5)

    def add(builder: ModelBuilder) -> str:
        flat = builder.add("Flatten", "input")
        constants = builder.constant(weight), builder.constant(bias)
        return builder.add("Gemm", flat, *constants, alpha=factors[0], beta=factors[1], transB=transposed)

    return add


def _reordered() -> Layers:
    """Transposed, sliced backwards, split and padded with a number."""
    order = pick([[0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2]])
    ends, fill = ([3, 2], pick([[-6, -6], [0, 0]])), pick([0.0, uniform(0.1, 2.0)])

    def add(builder: ModelBuilder) -> str:
        integers = [builder.constant(numbers, np.int64) for numbers in (*ends, [2, 3], [-2, -1])]
        value = builder.add("Slice", "input", *integers)
        value = builder.add("Transpose", value, perm=order)
        return builder.add("Pad", value, builder.constant([0, 0, 1, 0, 0, 0, 0, 2], np.int64), builder.constant(fill))

    return add


def _batch_norm() -> Layers:
    """A batch norm with a large epsilon, and a slope below zero that is the default."""
    scale, variance = positive(2), positive(2)
    bias, mean = torch.randn(2).numpy(), torch.randn(2).numpy()

    slope = integer(0, 1)

    def add(builder: ModelBuilder) -> str:
        constants = (builder.constant(numbers) for numbers in (scale, bias, mean, variance))
        value = builder.add("BatchNormalization", "input", *constants, epsilon=0.1)
        return builder.add("LeakyRelu", value, alpha=0.3) if slope else builder.add("LeakyRelu", value)

    return add


def _reduced() -> Layers:
    """Means and sums over negative axes, with and without these axes kept."""
    kept, axes = integer(0, 1), pick([[-1], [-2], [1, -1]])

    def add(builder: ModelBuilder) -> str:
        value = builder.add("ReduceMean", "input", axes=axes, keepdims=kept)
        return builder.add("Mul", value, builder.constant([2.0]))

    return add


OPERATORS: dict[str, Callable[[], Layers]] = {
    "0-d tensors": _zero_dimensional,
    "0-d index": _gather_without_axes,
    "convolution": _convolution,
    "automatic padding": _padded_automatically,
    "average pool": _average_pool,
    "max pool": _max_pool,
    "Gemm": _gemm,
    "reordered": _reordered,
    "batch norm": _batch_norm,
    "means": _reduced,
}


def operator_instance(name: str) -> KnownInstance:
    """Return the property that a positive combination of what the operators compute stays above a number."""
    layers, seed = OPERATORS[name](), integer(0, 2**31 - 1)
    image = torch.rand(SHAPE).numpy() + np.float32(0.5)
    radius = np.float32(power_of_ten(-2, -0.5))
    lower, upper = image - radius, image + radius
    score = float(runtime(_model(layers, seed, 0.0))(lower)[0])
    if score < LEAST_SCORE:
        raise ConstructionError
    sign = pick([-1, 1])
    model = _model(layers, seed, score - sign * abs(score) * power_of_ten(-3, -1))
    found = runtime(model)(lower)
    truth = Truth.HOLDS if found[0] > found[1] else Truth.VIOLATED
    return file_instance(model, lower, upper, truth, lower)


def _model(layers: Layers, seed: int, level: float) -> onnx.ModelProto:
    builder = ModelBuilder(SHAPE, constants_as_nodes=bool(seed % 2))
    flat = builder.add("Flatten", builder.add("Relu", layers(builder)))
    weights = np.zeros((_length(layers), 2), dtype=np.float32)
    weights[:, 0] = np.random.default_rng(seed).uniform(0.1, 1, len(weights))
    product = builder.add("MatMul", flat, builder.constant(weights))
    return builder.model(builder.add("Add", product, builder.constant([-level, 0.0])), 2)


def _length(layers: Layers) -> int:
    """Return how many numbers the layers compute."""
    builder = ModelBuilder(SHAPE)
    return len(runtime(builder.model(layers(builder)))(np.zeros(SHAPE, dtype=np.float32)))
