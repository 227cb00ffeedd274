"""The graph that is built while an ONNX file is read.

The graph's values have the batch as their first axis. An ONNX tensor at batch size 1 becomes a value of shape
(batch, *shape). If its leading axis has length 1, that axis is taken as the batch (nearly always true). Otherwise the
tensor has no batch axis of its own, and the graph adds one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Dense, Operation, Scale, Shape
from steadynet.graph.rearrangements import Permute, Reshape
from steadynet.interchange.onnx.files import UnsupportedError

MAX_NUMBERS = 2**27  # in all values and in all constants that are computed while reading


class GraphValue(NamedTuple):
    """A tensor that depends on the network's input: its position in the graph, and its ONNX shape at batch size 1."""

    position: int
    shape: Shape


def without_batch(shape: Shape) -> Shape:
    """Return an ONNX shape without the batch axis: a leading axis of length 1, if there is one.

    >>> without_batch((1, 3, 8, 8)), without_batch((5, 4))
    ((3, 8, 8), (5, 4))
    """
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


@dataclass
class GraphBuilder:
    """The graph so far. Neighbouring reshapes, transpositions and scalings are merged while it is built."""

    name: str = ""  # of the ONNX node that is being read
    nodes: list[Node] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)  # without batch, of the input and of every node
    reserved: int = 0

    def reserve(self, numbers: int) -> None:
        """Count numbers that will be in memory, so that a small file cannot make the reader use all of it."""
        self.reserved += numbers
        if self.reserved > MAX_NUMBERS:
            raise UnsupportedError(f"more than {MAX_NUMBERS} numbers")

    def add_input(self, shape: Shape) -> GraphValue:
        """Add the network's input."""
        self.reserve(math.prod(shape))
        self.shapes.append(without_batch(shape))
        return GraphValue(0, shape)

    def add(self, operation: Operation, shape: Shape, *sources: GraphValue) -> GraphValue:
        """Add a node whose result has this ONNX shape."""
        if min(shape, default=1) < 1:
            raise UnsupportedError(f"a result of shape {shape}")
        self.reserve(math.prod(shape))
        self.nodes.append(Node(self.name, operation, tuple(source.position for source in sources)))
        self.shapes.append(without_batch(shape))
        return GraphValue(len(self.nodes), shape)

    def producer(self, value: GraphValue) -> Node | None:
        """Return the node that computes a value; None for the network's input."""
        return self.nodes[value.position - 1] if value.position else None

    def reshape(self, source: GraphValue, shape: Shape) -> GraphValue:
        """Add the same numbers in another shape; a reshape of a reshape becomes one."""
        if math.prod(shape) != math.prod(source.shape):
            raise UnsupportedError(f"a reshape of {source.shape} to {shape}")
        position, before = source.position, self.producer(source)
        if before and isinstance(before.operation, Reshape) and without_batch(shape) != without_batch(source.shape):
            position = before.inputs[0]
        if without_batch(shape) == self.shapes[position]:
            return GraphValue(position, shape)
        return self.add(Reshape(without_batch(shape)), shape, GraphValue(position, ()))

    def permute(self, source: GraphValue, order: list[int]) -> GraphValue:
        """Add a transposition: axis i of the result is axis ``order[i]`` of the source."""
        if sorted(order) != list(range(len(source.shape))):
            raise UnsupportedError(f"a transposition {order} of {source.shape}")
        shape = tuple(source.shape[axis] for axis in order)
        if order == sorted(order):
            return source
        if len(without_batch(shape)) == len(without_batch(source.shape)) == len(shape):  # neither has a batch axis
            return self._permute(source, order, shape)
        if order[0] == 0:  # the batch axis stays in front
            return self._permute(source, [axis - 1 for axis in order[1:]], shape)
        # An axis of length 1 becomes the batch axis, or stops being it. Axes of length 1 can be moved by a reshape, so
        # only the longer ones are really transposed.
        longer_moved = [axis for axis in order if source.shape[axis] != 1]
        longer = sorted(longer_moved)
        if longer_moved == longer:
            return self.reshape(source, shape)
        lengths = tuple(source.shape[axis] for axis in longer)
        moved_lengths = tuple(source.shape[axis] for axis in longer_moved)
        squeezed = self.add(Reshape(lengths), lengths, source)
        moved = self._permute(squeezed, [longer.index(axis) for axis in longer_moved], moved_lengths)
        return self.reshape(moved, shape)

    def _permute(self, source: GraphValue, order: list[int], shape: Shape) -> GraphValue:
        """``order`` counts the axes without the batch; a transposition of a transposition becomes one."""
        before = self.producer(source)
        if before and isinstance(before.operation, Permute) and len(before.operation.order) == len(order):
            order = [before.operation.order[axis] for axis in order]
            source = GraphValue(before.inputs[0], ())
        if order == sorted(order):
            return GraphValue(source.position, shape)
        return self.add(Permute(tuple(order)), shape, source)

    def scale(self, source: GraphValue, factor: Tensor | float = 1.0, shift: Tensor | float = 0.0) -> GraphValue:
        """Add source · factor + shift, broadcast as in ONNX; merged with a scaling or a dense layer before it."""
        factor, shift = torch.as_tensor(factor), torch.as_tensor(shift)
        shape = tuple(torch.broadcast_shapes(source.shape, factor.shape, shift.shape))
        if math.prod(shape) != math.prod(source.shape):
            raise UnsupportedError("arithmetic that broadcasts data")
        source = self.reshape(source, shape)
        if bool((factor == 1).all() and (shift == 0).all()):
            return source
        if len(without_batch(shape)) < len(shape):
            factor, shift = (part[0] if part.dim() == len(shape) else part for part in (factor, shift))
        before = self.producer(source)
        if before and isinstance(before.operation, Scale):
            factor, shift = before.operation.factor * factor, before.operation.shift * factor + shift
            return self.add(Scale(factor, shift), shape, GraphValue(before.inputs[0], ()))
        if before and isinstance(before.operation, Dense) and bool((factor == 1).all()) and _per_output(shift, shape):
            old_bias = 0.0 if before.operation.bias is None else before.operation.bias
            bias = shift.reshape(-1).expand(shape[-1]) + old_bias
            return self.add(Dense(before.operation.weight, bias), shape, GraphValue(before.inputs[0], ()))
        return self.add(Scale(factor, shift), shape, source)

    def build(self, result: GraphValue) -> Graph:
        """Return the graph whose output is a value, flattened; nodes that the output does not need are left out."""
        flat = (math.prod(result.shape),)
        if without_batch(result.shape) != flat or result.position == 0:
            result = self.add(Reshape(flat), flat, result)
        return Graph(tuple(self.nodes)).up_to(result.position)


def _per_output(shift: Tensor, shape: Shape) -> bool:
    """Return whether a shift adds one number per output of a dense layer, or the same number to all of them."""
    return shift.numel() == 1 or (shift.numel() == shape[-1] == shift.shape[-1])
