"""Graphs evaluated without torch: exactly, exactly on a whole segment, and in float32 with sums in a chosen order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Dense, Operation, ReLU, Scale, Sum
from steadynet.graph.pooling import AveragePool, MaxPool
from steadynet.graph.rearrangements import Concat, Pad, Permute, Reshape, Take

Array = np.ndarray[Any, Any]  # of the numbers of one system
Terms = Sequence[tuple[float, Any]]  # weight and value


class Exact:
    """Rational numbers."""

    zero: Any = Fraction(0)

    def number(self, value: float) -> Any:
        return Fraction(value)

    def sum(self, terms: Terms, constant: float = 0.0, divisor: int = 1) -> Any:
        return (sum((Fraction(weight) * value for weight, value in terms), self.zero) + Fraction(constant)) / divisor

    def relu(self, value: Any, slope: float) -> Any:
        return value if value > 0 else Fraction(slope) * value

    def largest(self, values: list[Any]) -> Any:
        return max(values)


@dataclass(frozen=True)
class Line:
    """at_zero + slope · t."""

    at_zero: Fraction
    slope: Fraction = Fraction(0)

    def __call__(self, t: Fraction) -> Fraction:
        return self.at_zero + self.slope * t


class BendError(Exception):
    """A value is not one line on the segment: it bends at t."""

    def __init__(self, t: Fraction) -> None:
        super().__init__(t)
        self.t = t


class OnSegment(Exact):
    """Lines in t, for t between two ends; where a value bends in between, ``BendError`` says where."""

    zero = Line(Fraction(0))

    def __init__(self, start: Fraction, end: Fraction) -> None:
        self.start, self.end = start, end

    def number(self, value: float) -> Any:
        return Line(Fraction(value))

    def sum(self, terms: Terms, constant: float = 0.0, divisor: int = 1) -> Any:
        at_zero = sum((Fraction(weight) * value.at_zero for weight, value in terms), Fraction(constant))
        slope = sum((Fraction(weight) * value.slope for weight, value in terms), Fraction(0))
        return Line(at_zero / divisor, slope / divisor)

    def relu(self, value: Any, slope: float) -> Any:
        return value if self._positive(value) else self.sum([(slope, value)])

    def largest(self, values: list[Any]) -> Any:
        best = values[0]
        for value in values[1:]:
            best = value if self._positive(self.sum([(1.0, value), (-1.0, best)])) else best
        return best

    def _positive(self, value: Line) -> bool:
        at_start, at_end = value(self.start), value(self.end)
        if at_start * at_end < 0:
            raise BendError(-value.at_zero / value.slope)
        return at_start + at_end > 0


def smallest_on_segment(graph: Graph, ends: tuple[Tensor, Tensor], row: Sequence[int]) -> tuple[Fraction, Fraction]:
    """The exact minimum of row · output between two inputs (1, *shape): its place t in [0, 1], and its value."""
    low, high = (exact_input(end) for end in ends)
    line = np.frompyfunc(lambda start, end: Line(start, end - start), 2, 1)(low, high)
    found, waiting = [], [(Fraction(0), Fraction(1))]
    while waiting:
        start, end = waiting.pop()
        numbers = OnSegment(start, end)
        try:
            margin = numbers.sum(list(zip(map(float, row), values(graph, line, numbers)[-1].flat, strict=True)))
        except BendError as bend:
            waiting += [(start, bend.t), (bend.t, end)]
        else:
            found += [(margin(t), t) for t in (start, end)]
    value, place = min(found)
    return place, value


Order = Callable[[list[Any]], Any]


def sequential(terms: list[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def pairwise(terms: list[Any]) -> Any:
    middle = len(terms) // 2
    return pairwise(terms[:middle]) + pairwise(terms[middle:]) if middle else terms[0]


ORDERS: dict[str, Order] = {
    "sequential": sequential,
    "reversed": lambda terms: sequential(terms[::-1]),
    "small first": lambda terms: sequential(sorted(terms, key=abs)),
    "large first": lambda terms: sequential(sorted(terms, key=abs)[::-1]),
    "by sign": lambda terms: sequential(sorted(terms)),
    "pairwise": pairwise,
}


class Float(Exact):
    """Floating-point numbers, with sums in some order, or by fused multiply-add one after the other."""

    def __init__(self, order: str, kind: type[Any] = np.float32) -> None:
        self.order, self.kind, self.zero = order, kind, kind(0)

    def number(self, value: float) -> Any:
        return self.kind(value)

    def sum(self, terms: Terms, constant: float = 0.0, divisor: int = 1) -> Any:
        if self.order == "fused":
            total = self.kind(constant)
            for weight, value in terms:  # the product of two float32 is exact in float64
                total = self.kind(np.float64(weight) * np.float64(value) + np.float64(total))
        else:
            total = ORDERS[self.order]([self.kind(weight) * value for weight, value in terms] + [self.kind(constant)])
        return total / self.kind(divisor)

    def relu(self, value: Any, slope: float) -> Any:
        return value if value > 0 else self.kind(slope) * value


def exact_input(image: Tensor) -> Array:
    """An input (1, *shape) as rational numbers."""
    numbers = np.array([Fraction(value) for value in image.flatten().tolist()] + [None], dtype=object)[:-1]
    return numbers.reshape(image.shape[1:])


def float_input(image: Tensor) -> Array:
    """An input (1, *shape) as numbers of its own precision."""
    return np.array([*image[0].numpy().flat, None], dtype=object)[:-1].reshape(image.shape[1:])


def values(graph: Graph, image: Array, numbers: Exact) -> list[Array]:
    """Every value of a graph at one input, without a batch axis."""
    found = [image]
    with np.errstate(over="ignore", invalid="ignore"):  # a network of extreme weights may overflow
        for node in graph.nodes:
            found.append(_applied(node.operation, [found[source] for source in node.inputs], numbers))
    return found


def _applied(operation: Operation, inputs: list[Array], numbers: Exact) -> Array:
    value = inputs[0]
    match operation:
        case Dense():
            return _dense(operation, value, numbers)
        case Convolution():
            return _convolution(operation, value, numbers)
        case Scale():
            factor, shift = (constant.detach().expand(value.shape) for constant in (operation.factor, operation.shift))
            parts = zip(factor.flatten().tolist(), value.flat, shift.flatten().tolist(), strict=True)
            return _array([numbers.sum([(weight, x)], constant) for weight, x, constant in parts], value.shape)
        case ReLU():
            return _array([numbers.relu(x, operation.slope) for x in value.flat], value.shape)
        case Sum():
            pairs = zip(value.flat, inputs[1].flat, strict=True)
            return _array([numbers.sum([(1.0, x), (1.0, y)]) for x, y in pairs], value.shape)
        case MaxPool():
            return _maxima(operation, value, numbers)
        case AveragePool():
            return _means(operation, value, numbers)
    return _moved(operation, inputs, numbers)


def _moved(operation: Operation, inputs: list[Array], numbers: Exact) -> Array:
    value = inputs[0]
    match operation:
        case Reshape():
            return value.reshape(operation.shape)
        case Permute():
            return value.transpose(operation.order)
        case Concat():
            return np.concatenate(inputs, operation.axis - 1 if operation.axis > 0 else operation.axis)
        case Take():
            axis = operation.axis - 1 if operation.axis > 0 else operation.axis
            return np.take(value, operation.positions, axis)
        case Pad():
            result = np.full([sum(w) + n for w, n in zip(operation.widths, value.shape, strict=True)], numbers.zero)
            result[tuple(slice(w[0], w[0] + n) for w, n in zip(operation.widths, value.shape, strict=True))] = value
            return result
    raise TypeError(type(operation).__name__)


def _array(numbers: list[Any], shape: tuple[int, ...]) -> Array:
    return np.array([*numbers, None], dtype=object)[:-1].reshape(shape)


def _dense(operation: Dense, value: Array, numbers: Exact) -> Array:
    weights = operation.weight.tolist()
    biases = [0.0] * len(weights) if operation.bias is None else operation.bias.tolist()
    rows = value.reshape(-1, value.shape[-1])
    result = [
        numbers.sum(list(zip(weight, row, strict=True)), bias)
        for row in rows
        for weight, bias in zip(weights, biases, strict=True)
    ]
    return _array(result, (*value.shape[:-1], len(weights)))


def _windows(
    size: tuple[int, ...], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Callable[[int, int], list[tuple[tuple[int, int], tuple[int, int]]]]:
    """(output row, output column) -> [(place in the kernel, place in the image)] without those in the padding."""

    def window(row: int, column: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        places = []
        for tap in itertools.product(range(kernel[0]), range(kernel[1])):
            y, x = (
                at * stride[axis] - padding[axis] + tap[axis] * dilation[axis] for axis, at in enumerate((row, column))
            )
            if 0 <= y < size[0] and 0 <= x < size[1]:
                places.append(((tap[0], tap[1]), (y, x)))
        return places

    return window


def _convolution(operation: Convolution, value: Array, numbers: Exact) -> Array:
    weight = operation.weight.detach().double().numpy()
    biases = [0.0] * len(weight) if operation.bias is None else operation.bias.tolist()
    kernel = weight.shape[2:]
    window = _windows(value.shape[1:], kernel, operation.stride, operation.padding, operation.dilation)
    _, *size = operation.apply(torch.zeros(1, *value.shape, dtype=operation.weight.dtype))[0].shape
    per_group, outputs = weight.shape[1], len(weight) // operation.groups
    result = []
    for channel, row, column in itertools.product(range(len(weight)), range(size[0]), range(size[1])):
        first = channel // outputs * per_group
        terms = [
            (float(weight[(channel, source, *tap)]), value[(first + source, *place)])
            for source in range(per_group)
            for tap, place in window(row, column)
        ]
        result.append(numbers.sum(terms, biases[channel]))
    return _array(result, (len(weight), *size))


def _maxima(operation: MaxPool, value: Array, numbers: Exact) -> Array:
    window = _windows(value.shape[1:], operation.kernel, operation.stride, operation.padding, operation.dilation)
    shape = tuple(operation.apply(torch.zeros(1, *value.shape))[0].shape)
    cells = itertools.product(*map(range, shape))
    return _array([numbers.largest([value[(c, *place)] for _, place in window(y, x)]) for c, y, x in cells], shape)


def _means(operation: AveragePool, value: Array, numbers: Exact) -> Array:
    window = _windows(value.shape[1:], operation.kernel, operation.stride, operation.padding, (1, 1))
    shape = tuple(operation.apply(torch.zeros(1, *value.shape))[0].shape)
    result = []
    for channel, y, x in itertools.product(*map(range, shape)):
        seen = [(1.0, value[(channel, *place)]) for _, place in window(y, x)]
        ends = [
            min(
                at * operation.stride[axis] + operation.kernel[axis],
                value.shape[1 + axis] + 2 * operation.padding[axis],
            )
            - at * operation.stride[axis]
            for axis, at in enumerate((y, x))
        ]
        counted = ends[0] * ends[1] if operation.count_include_pad else len(seen)
        result.append(numbers.sum(seen, divisor=operation.divisor or counted))
    return _array(result, shape)
