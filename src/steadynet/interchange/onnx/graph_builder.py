"""What the rows of the ONNX table work with: one call, and the graph that is being built.

A tensor of ONNX at batch size 1 is held as (batch, *shape) without its leading axis of length 1, if it has one: so the
batch may be the leading axis, as nearly always, or be missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Dense, Operation, Permute, Reshape, Scale, Shape
from steadynet.interchange.onnx.files import UnsupportedError

LARGEST = 2**27  # numbers in all values, and in all constants made on the way

Array = NDArray[Any]


class Value(NamedTuple):
    """A tensor made from the input: its place in the graph, and its shape in ONNX at batch size 1."""

    position: int
    shape: Shape


def held(shape: Shape) -> Shape:
    """The shape without the batch: a leading axis of length 1 is the batch's."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def floats(array: Array) -> Tensor:
    """A constant as weights."""
    if array.dtype.kind not in "fiu":
        raise UnsupportedError(f"constants of type {array.dtype}")
    with np.errstate(all="ignore"):
        tensor = torch.tensor(np.asarray(array, dtype=np.float32))
    if not bool(tensor.isfinite().all()):
        raise UnsupportedError("constants that are not finite")
    return tensor


@dataclass(frozen=True)
class Call:
    """One node of the file: each input is a tensor made from the data, a constant, or left out."""

    kind: str
    name: str
    inputs: list[Value | Array | None]
    options: dict[str, Any]
    opset: int
    outputs: int = 1

    def input(self, index: int) -> Value | Array | None:
        """An input, None if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def data(self, index: int = 0) -> Value:
        """An input that must be made from the data."""
        found = self.input(index)
        if not isinstance(found, Value):
            raise UnsupportedError("a constant where data is expected")
        return found

    def constant(self, index: int) -> Array | None:
        """An input that must be constant, None if it is left out."""
        found = self.input(index)
        if isinstance(found, Value):
            raise UnsupportedError("data where a constant is expected")
        return found

    def weights(self, index: int) -> Tensor:
        """A constant that must be there."""
        found = self.constant(index)
        if found is None:
            raise UnsupportedError("a missing input")
        return floats(found)

    def integers(self, option: str, index: int | None = None) -> list[int] | None:
        """Integers from an option or, in later versions of the operator, from an input."""
        if option in self.options:
            return [int(number) for number in self.options[option]]
        found = None if index is None else self.constant(index)
        return None if found is None else [int(number) for number in found.reshape(-1)]

    def axis(self, default: int, axes: int, option: str = "axis") -> int:
        """An axis, counted from the front."""
        return front(int(self.options.get(option, default)), axes)


def front(axis: int, axes: int) -> int:
    """An axis counted from the front."""
    if not -axes <= axis < axes:
        raise UnsupportedError(f"axis {axis} of a tensor with {axes}")
    return axis % axes


@dataclass
class Builder:
    """The graph so far."""

    name: str = ""
    nodes: list[Node] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)  # as held, of the input and of every node
    numbers: int = 0

    def input(self, shape: Shape) -> Value:
        """The network's input."""
        self.spend(math.prod(shape))
        self.shapes.append(held(shape))
        return Value(0, shape)

    def spend(self, numbers: int) -> None:
        """Count numbers that will be in memory: a small file must not ask for all of it."""
        self.numbers += numbers
        if self.numbers > LARGEST:
            raise UnsupportedError(f"more than {LARGEST} numbers")

    def add(self, operation: Operation, shape: Shape, *sources: Value) -> Value:
        """One more node, whose result has this shape in ONNX."""
        if min(shape, default=1) < 1:
            raise UnsupportedError(f"a result of shape {shape}")
        self.spend(math.prod(shape))
        self.nodes.append(Node(self.name, operation, tuple(source.position for source in sources)))
        self.shapes.append(held(shape))
        return Value(len(self.nodes), shape)

    def producer(self, value: Value) -> Node | None:
        """The node that made a value; None for the input."""
        return self.nodes[value.position - 1] if value.position else None

    def reshaped(self, source: Value, shape: Shape) -> Value:
        """The same numbers in another shape."""
        if math.prod(shape) != math.prod(source.shape):
            raise UnsupportedError(f"a reshape of {source.shape} to {shape}")
        position, before = source.position, self.producer(source)
        if before and isinstance(before.operation, Reshape) and held(shape) != held(source.shape):
            position = before.inputs[0]
        if held(shape) == self.shapes[position]:
            return Value(position, shape)
        return self.add(Reshape(held(shape)), shape, Value(position, ()))

    def permuted(self, source: Value, order: list[int]) -> Value:
        """The axes in another order."""
        if sorted(order) != list(range(len(source.shape))):
            raise UnsupportedError(f"a transposition {order} of {source.shape}")
        shape = tuple(source.shape[axis] for axis in order)
        if order == sorted(order):
            return source
        if len(held(shape)) == len(held(source.shape)) == len(shape):  # no axis is the batch's
            return self._permuted(source, order, shape)
        if order[0] == 0:
            return self._permuted(source, [axis - 1 for axis in order[1:]], shape)
        long = [axis for axis in order if source.shape[axis] != 1]
        if long == sorted(long):
            return self.reshaped(source, shape)
        # an axis of length 1 takes the batch's place, or gives it up: only the others really move
        kept = [axis for axis in range(len(order)) if source.shape[axis] != 1]
        bare = self.add(
            Reshape(tuple(source.shape[axis] for axis in kept)), tuple(source.shape[a] for a in kept), source
        )
        moved = self._permuted(bare, [kept.index(axis) for axis in long], tuple(source.shape[axis] for axis in long))
        return self.reshaped(moved, shape)

    def _permuted(self, source: Value, order: list[int], shape: Shape) -> Value:
        before = self.producer(source)
        if before and isinstance(before.operation, Permute) and len(before.operation.order) == len(order):
            order = [before.operation.order[axis] for axis in order]
            source = Value(before.inputs[0], ())
        if order == sorted(order):
            return Value(source.position, shape)
        return self.add(Permute(tuple(order)), shape, source)

    def scaled(self, source: Value, factor: Tensor, shift: Tensor) -> Value:
        """x · factor + shift, both broadcast as ONNX does; joined to a scale or a dense layer before it."""
        shape = tuple(torch.broadcast_shapes(source.shape, factor.shape, shift.shape))
        if math.prod(shape) != math.prod(source.shape):
            raise UnsupportedError("arithmetic that broadcasts data")
        source = self.reshaped(source, shape)
        if bool((factor == 1).all() and (shift == 0).all()):
            return source
        if len(held(shape)) < len(shape):
            factor, shift = (part[0] if part.dim() == len(shape) else part for part in (factor, shift))
        before = self.producer(source)
        if before and isinstance(before.operation, Scale):
            factor, shift = before.operation.factor * factor, before.operation.shift * factor + shift
            return self.add(Scale(factor, shift), shape, Value(before.inputs[0], ()))
        if before and isinstance(before.operation, Dense) and bool((factor == 1).all()) and _per_output(shift, shape):
            bias = shift.reshape(-1).expand(shape[-1]) + (
                0.0 if before.operation.bias is None else before.operation.bias
            )
            return self.add(Dense(before.operation.weight, bias), shape, Value(before.inputs[0], ()))
        return self.add(Scale(factor, shift), shape, source)

    def finished(self, result: Value) -> Graph:
        """The graph up to a result, flat, without what the result does not need."""
        flat = (math.prod(result.shape),)
        if held(result.shape) != flat or result.position == 0:
            result = self.add(Reshape(flat), flat, result)
        return Graph(tuple(self.nodes)).up_to(result.position)


def _per_output(shift: Tensor, shape: Shape) -> bool:
    return shift.numel() == 1 or (shift.numel() == shape[-1] == shift.shape[-1])
