"""The graph that is built while an ONNX file is read.

The graph's values have the batch as their first axis. An ONNX tensor at batch size 1 becomes a value of shape
(batch, *shape). If its leading axis has length 1, that axis is taken as the batch (nearly always true). Otherwise the
tensor has no batch axis of its own, and the graph adds one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
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

    A single number, which has no axes, becomes a tensor of length 1.

    >>> without_batch((1, 3, 8, 8)), without_batch((5, 4)), without_batch(())
    ((3, 8, 8), (5, 4), (1,))
    """
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape or (1,)


@dataclass
class GraphBuilder:
    """The graph so far. Neighbouring reshapes and transpositions are merged while it is built.

    Arithmetic is merged only where the merged operation rounds as the two do: a + b − b is not a in float32.
    """

    dtype: torch.dtype = torch.float32  # that the network computes in
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

    def multiply(self, source: GraphValue, factor: Tensor | float, roundings: int = 0) -> GraphValue:
        """Add source · factor, broadcast as in ONNX; ``roundings`` is how many roundings the factor saw."""
        factor = torch.as_tensor(factor, dtype=self.dtype)
        return self.scale(source, Scale(factor, torch.zeros_like(factor), roundings=roundings))

    def shift(self, source: GraphValue, shift: Tensor | float, roundings: int = 0) -> GraphValue:
        """Add source + shift, broadcast as in ONNX; ``roundings`` is how many roundings the shift saw."""
        shift = torch.as_tensor(shift, dtype=self.dtype)
        return self.scale(source, Scale(torch.ones_like(shift), shift, roundings=roundings))

    def scale(self, source: GraphValue, scale: Scale) -> GraphValue:
        """Add source · factor + shift, broadcast as in ONNX; merged with the operation before it if that is exact."""
        shape = np.broadcast_shapes(source.shape, scale.factor.shape, scale.shift.shape)
        if math.prod(shape) != math.prod(source.shape):
            raise UnsupportedError("arithmetic that broadcasts data")
        source = self.reshape(source, shape)
        if _is_sign(scale) and bool((scale.factor == 1).all()):
            return source
        if len(without_batch(shape)) < len(shape):
            scale = _converted(scale, lambda part: part[0] if part.dim() == len(shape) else part)
        before = self.producer(source)
        merged = None if before is None else _merged(before.operation, scale, shape)
        if before is None or merged is None:
            return self.add(scale, shape, source)
        return self.add(merged, shape, GraphValue(before.inputs[0], ()))

    def build(self, result: GraphValue) -> BuiltGraph:
        """Return the graph whose output is a value, flattened; nodes that the output does not need are left out."""
        flat = (math.prod(result.shape),)
        if without_batch(result.shape) != flat or result.position == 0:
            result = self.add(Reshape(flat), flat, result)
        graph = Graph(tuple(self.nodes))
        moved = {0: 0} | {old: new for new, old in enumerate(graph.needed_by(result.position), 1)}
        return BuiltGraph(graph.up_to(result.position), moved)


class BuiltGraph(NamedTuple):
    """A graph, and the new position of every position of the builder that is in it."""

    graph: Graph
    moved: dict[int, int]


def _is_sign(scale: Scale) -> bool:
    """Return whether a scale leaves every number as it is, or changes its sign."""
    return _is_product(scale) and scale.roundings == 0 and bool((scale.factor.abs() == 1).all())


def _is_product(scale: Scale) -> bool:
    """Return whether a scale adds nothing."""
    return scale.behind_shift is None and bool((scale.shift == 0).all())


def _converted(scale: Scale, convert: Callable[[Tensor], Tensor]) -> Scale:
    behind = None if scale.behind_shift is None else convert(scale.behind_shift)
    return replace(scale, factor=convert(scale.factor), shift=convert(scale.shift), behind_shift=behind)


def _merged(before: Operation, scale: Scale, shape: Shape) -> Operation | None:
    """Return one operation that rounds as ``before`` and then ``scale`` do; None if there is none.

    A sign rounds nothing. A product and then a sum are one scale, and a matrix product and then a sum are one dense
    layer, whose rounding counts both. Any other two operations stay apart.
    """
    if isinstance(before, Dense):
        plain = before.bias is None and scale.behind_shift is None and bool((scale.factor == 1).all())
        if not plain or not _per_output(scale.shift, shape):
            return None
        bias = scale.shift.reshape(-1).expand(before.weight.shape[0])
        return replace(before, bias=bias, roundings=before.roundings + scale.roundings)
    if not isinstance(before, Scale):
        return None
    if _is_sign(scale):
        return replace(before, factor=before.factor * scale.factor, shift=before.shift * scale.factor)
    if _is_sign(before):
        return replace(scale, factor=before.factor * scale.factor)
    only_sum = scale.behind_shift is None and bool((scale.factor == 1).all())
    if _is_product(before) and only_sum:
        return replace(scale, factor=before.factor, roundings=before.roundings + scale.roundings)
    return None


def _per_output(shift: Tensor, shape: Shape) -> bool:
    """Return whether a shift adds one number per output of a dense layer, or the same number to all of them."""
    return shift.numel() == 1 or (len(shape) > 0 and shift.numel() == shape[-1] == shift.shape[-1])
