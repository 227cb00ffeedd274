"""Traps for readers of ONNX files: what must not be simplified, overlooked or read in another precision.

The truth is known because each network is monotone, in exact arithmetic and in floating point: its smallest margin lies
in a corner, which is run on ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx

from steadynet.verification.self_test.known import Family, KnownInstance, Truth
from steadynet.verification.self_test.onnx_instance import Array, ModelBuilder, Number, file_instance, refuted, runtime
from steadynet.verification.self_test.random_numbers import integer, pick, power_of_ten, uniform
from steadynet.verification.self_test.reader_operators import OPERATORS, operator_instance

HIDING = 1e6  # the size of an output beside which others look small


def _builder(dtype: type[Number] = np.float32) -> ModelBuilder:
    return ModelBuilder((1, 1), dtype, constants_as_nodes=bool(integer(0, 1)))


def _scored(builder: ModelBuilder, value: str, sign: float, level: float, *, hiding: bool) -> onnx.ModelProto:
    """Return a model: class 0 has ±(value − level), class 1 has 0, and a third class, if any, is far behind."""
    classes = 3 if hiding else 2
    weight = builder.constant([[sign], [0.0], [0.0]][:classes])
    bias = builder.constant([-sign * level, 0.0, -HIDING][:classes])
    return builder.model(builder.add("Gemm", value, weight, bias, transB=1), classes)


def _interval(dtype: type[Number]) -> tuple[Array, Array]:
    lower, upper = (np.full((1, 1), end, dtype=dtype) for end in (uniform(0.1, 0.5), uniform(0.5, 0.9)))
    return lower, upper


def _same_as_x(builder: ModelBuilder, value: str, *, hiding: bool) -> KnownInstance:
    """Return a property of a value that is x in exact arithmetic, and that rounding may make something else."""
    sign, level = pick([-1.0, 1.0]), float(np.float32(uniform(0.0, 1.0)))
    model = _scored(builder, value, sign, level, hiding=hiding)
    corners = _interval(builder.dtype)
    worst = corners[0 if sign > 0 else 1]
    scores = runtime(model)(worst)
    violated = refuted(scores) or bool(np.isnan(scores).any())
    if sign * (float(worst[0, 0]) - level) > 0:  # the sign of this difference is not changed by rounding
        truth = Truth.VIOLATED_BY_ROUNDING if violated else Truth.HOLDS
    else:
        truth = Truth.VIOLATED if violated else Truth.VIOLATED_EXACTLY
    return file_instance(model, *corners, truth, worst)


def cancelling_constants(*, hiding: bool) -> KnownInstance:
    """x + 2^k − 2^k, in two nodes; with ``hiding``, beside a score of −1e6, which makes all differences look small."""
    builder = _builder()
    large = builder.constant([2.0 ** integer(20, 30)])
    value = builder.add("Sub", builder.add("Add", "input", large), large)
    if integer(0, 1):
        value = builder.add("Relu", value)
    return _same_as_x(builder, value, hiding=hiding)


def scaling_constants() -> KnownInstance:
    """x times two factors and two that undo them; on the way float32 underflows or overflows, or neither."""
    builder, value = _builder(), "input"
    for exponent in pick([(-80, -80, 80, 80), (80, 80, -80, -80), (60, 60, -60, -60), (-60, 60, -60, 60)]):
        value = builder.add("Mul", value, builder.constant([2.0**exponent]))
    return _same_as_x(builder, value, hiding=bool(integer(0, 1)))


def constant_subgraph() -> KnownInstance:
    """x + ((2^k + 1) − 2^k): the constant is 0 in float32 and 1 in exact arithmetic. Class 0 needs the 1."""
    builder, (lower, upper) = _builder(), _interval(np.float32)
    large = builder.constant([2.0 ** integer(25, 30)])
    one = builder.add("Sub", builder.add("Add", large, builder.constant([1.0])), large)
    level, hiding = uniform(float(upper[0, 0]), 1.05), bool(integer(0, 1))
    model = _scored(builder, builder.add("Add", "input", one), 1.0, level, hiding=hiding)
    assert refuted(runtime(model)(lower))
    return file_instance(model, lower, upper, Truth.VIOLATED_BY_ROUNDING)


def double_model() -> KnownInstance:
    """x + 2^k − 2^k in float64, which loses digits for other k than float32 does."""
    builder = _builder(np.float64)
    large = builder.constant([2.0 ** pick([25, 30, 40, 50, 55])])
    value = builder.add("Sub", builder.add("Add", "input", large), large)
    return _same_as_x(builder, value, hiding=bool(integer(0, 1)))


def double_digits() -> KnownInstance:
    """(1 ± 1e-10)·x − x in float64: in float32 nothing is left of it."""
    builder, (lower, upper) = _builder(np.float64), _interval(np.float64)
    sign = pick([-1.0, 1.0])
    scaled = builder.add("Mul", "input", builder.constant([1 + sign * power_of_ten(-11, -9)]))
    model = _scored(builder, builder.add("Sub", scaled, "input"), 1.0, 0.0, hiding=bool(integer(0, 1)))
    return file_instance(model, lower, upper, Truth.HOLDS if sign > 0 else Truth.VIOLATED, lower)


KINDS: dict[str, Callable[[], KnownInstance]] = {
    "constants that cancel": partial(cancelling_constants, hiding=False),
    "an output of -1e6 that hides another": partial(cancelling_constants, hiding=True),
    "constants that scale": scaling_constants,
    "constants of constants": constant_subgraph,
    "double model": double_model,
    "digits of a double model": double_digits,
    **{f"operators: {name}": partial(operator_instance, name) for name in OPERATORS},
}
FAMILY = Family("readers", KINDS)
