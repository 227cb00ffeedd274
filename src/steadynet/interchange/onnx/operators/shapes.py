"""ONNX operators that move numbers and compute nothing: reshaping, transposing, padding, slicing, joining."""

from __future__ import annotations

import itertools
import math

from steadynet.graph.rearrangements import Concat, Pad, Take
from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import GraphBuilder, GraphValue, without_batch
from steadynet.interchange.onnx.node import Array, OnnxNode, non_negative_axis


def flatten(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Flatten."""
    source = node.value()
    axis, rank = node.attributes.integer("axis", 1), len(source.shape)
    axis = rank if axis == rank else non_negative_axis(axis, rank)
    return builder.reshape(source, (math.prod(source.shape[:axis]), math.prod(source.shape[axis:])))


def reshape(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Reshape: the length 0 keeps the axis, and −1 stands for the length that is left."""
    source, wanted = node.value(), node.integers("shape", 1)
    if wanted is None or (node.attributes.flag("allowzero") and 0 in wanted):
        raise UnsupportedError("a reshape without a shape")
    if any(length == 0 and axis >= len(source.shape) for axis, length in enumerate(wanted)):
        raise UnsupportedError(f"a reshape of {source.shape} to {wanted}")
    shape = [length or source.shape[axis] for axis, length in enumerate(wanted)]
    if -1 in shape:
        known = math.prod(length for length in shape if length != -1)
        shape[shape.index(-1)] = math.prod(source.shape) // known if known > 0 else 0
    if any(length < 1 for length in shape):
        raise UnsupportedError(f"a reshape of {source.shape} to {wanted}")
    return builder.reshape(source, tuple(shape))


def transpose(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Transpose."""
    rank = len(node.value().shape)
    return builder.permute(node.value(), node.integers("perm") or list(reversed(range(rank))))


def squeeze(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Squeeze: the given axes, or all axes of length 1."""
    source, axes = node.value(), node.integers("axes", 1)
    rank = len(source.shape)
    if axes is None:
        removed = {axis for axis in range(rank) if source.shape[axis] == 1}
    else:
        removed = {non_negative_axis(axis, rank) for axis in axes}
    return builder.reshape(source, tuple(length for axis, length in enumerate(source.shape) if axis not in removed))


def unsqueeze(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Unsqueeze."""
    source, axes = node.value(), node.integers("axes", 1) or []
    rank = len(source.shape) + len(axes)
    added = {non_negative_axis(axis, rank) for axis in axes}
    if len(added) != len(axes) or rank > 8:
        raise UnsupportedError(f"Unsqueeze with axes {axes}")
    lengths = iter(source.shape)
    return builder.reshape(source, tuple(1 if axis in added else next(lengths) for axis in range(rank)))


def concatenate(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Concat, except along the batch axis."""
    parts = [node.value(index) for index in range(len(node.inputs))]
    axis = node.axis(1, len(parts[0].shape))
    other_lengths = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
    if len(other_lengths) > 1 or len({len(part.shape) for part in parts}) > 1:
        raise UnsupportedError("a concatenation of these shapes along this axis")
    shape = (*parts[0].shape[:axis], sum(part.shape[axis] for part in parts), *parts[0].shape[axis + 1 :])
    if axis == 0 and all(without_batch(part.shape) != part.shape for part in parts):
        raise UnsupportedError("a concatenation along the batch axis")
    if axis == 0 or without_batch(shape) == shape:  # without a batch axis: add one
        parts, axis = [builder.reshape(part, (1, *part.shape)) for part in parts], axis + 1
    joined = (1, *parts[0].shape[1:axis], sum(part.shape[axis] for part in parts), *parts[0].shape[axis + 1 :])
    return builder.reshape(builder.add(Concat(axis), joined, *parts), shape)


def pad(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Pad with zeros, except along the batch axis."""
    source, pads, value = node.value(), node.integers("pads", 1), node.constant(2)
    number = node.attributes.number("value", 0.0) if value is None else float(node.tensor(value).reshape(()))
    if node.attributes.string("mode", "constant") != "constant" or number != 0:
        raise UnsupportedError("padding with something other than zeros")
    rank = len(source.shape)
    axes = [non_negative_axis(axis, rank) for axis in node.integers("axes", 3) or range(rank)]
    if pads is None or len(pads) != 2 * len(axes) or min(pads, default=0) < 0 or len(set(axes)) < len(axes):
        raise UnsupportedError(f"pads {pads}")
    padded = {axis: (pads[index], pads[index + len(axes)]) for index, axis in enumerate(axes)}
    widths = [padded.get(axis, (0, 0)) for axis in range(rank)]
    batch_axes = rank - len(without_batch(source.shape))
    if any(widths[axis] != (0, 0) for axis in range(batch_axes)):
        raise UnsupportedError("padding of the batch axis")
    shape = tuple(length + sum(width) for length, width in zip(source.shape, widths, strict=True))
    return source if shape == source.shape else builder.add(Pad(tuple(widths[batch_axes:])), shape, source)


def slice_axes(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Slice: start, end and step along some axes."""
    result, starts, ends = node.value(), node.integers("starts", 1), node.integers("ends", 2)
    if starts is None or ends is None:
        raise UnsupportedError("a slice without start or end")
    axes = node.integers("axes", 3) or list(range(len(starts)))
    steps = node.integers("steps", 4) or [1] * len(starts)
    axes = [non_negative_axis(axis, len(result.shape)) for axis in axes]
    if not len(starts) == len(ends) == len(set(axes)) == len(axes) == len(steps) or 0 in steps:
        raise UnsupportedError(f"a slice along axes {axes[:8]} whose starts, ends or steps do not match")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        result = _select(builder, result, axis, tuple(range(result.shape[axis])[start:end:step]))
    return result


def gather(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Gather: constant indices along one axis. A single number as the index removes the axis."""
    source, index = node.value(), node.constant(1)
    axis = node.axis(0, len(source.shape))
    length = source.shape[axis]
    if index is None or index.dtype.kind not in "iu" or not _in_range(index, length):
        raise UnsupportedError(f"a gather outside an axis of length {length}")
    builder.reserve(index.size)
    positions = tuple(int(place) % length for place in index.reshape(-1))
    selected = _select(builder, source, axis, positions)
    return builder.reshape(selected, (*source.shape[:axis], *index.shape, *source.shape[axis + 1 :]))


def _in_range(index: Array, length: int) -> bool:
    return index.size > 0 and bool(-length <= index.min() and index.max() < length)


def split(node: OnnxNode, builder: GraphBuilder) -> list[GraphValue]:
    """Split: parts along one axis, of given lengths, or of equal lengths except for the last one."""
    source, lengths = node.value(), node.integers("split", 1)
    axis = node.axis(0, len(source.shape))
    length, count = source.shape[axis], node.attributes.integer("num_outputs", node.output_count)
    if lengths is None and 0 < count <= length:
        part = -(-length // count)
        lengths = [min(part, length - start) for start in range(0, length, part)]
    if not lengths or len(lengths) != node.output_count or sum(lengths) != length or min(lengths) < 1:
        raise UnsupportedError(f"a split of {length} into {(lengths or [])[:8]}")
    ends = itertools.accumulate(lengths)
    parts = zip(lengths, ends, strict=True)
    return [_select(builder, source, axis, tuple(range(end - size, end))) for size, end in parts]


def _select(builder: GraphBuilder, source: GraphValue, axis: int, positions: tuple[int, ...]) -> GraphValue:
    """Select positions along an axis."""
    if positions == tuple(range(source.shape[axis])):
        return source
    shape = (*source.shape[:axis], len(positions), *source.shape[axis + 1 :])
    if without_batch(source.shape) == source.shape:  # add a batch axis: the first axis may be left with length 1
        source, axis = builder.reshape(source, (1, *source.shape)), axis + 1
    if axis == 0:
        raise UnsupportedError("a selection along the batch axis")
    selected_shape = (1, *source.shape[1:axis], len(positions), *source.shape[axis + 1 :])
    return builder.reshape(builder.add(Take(axis, positions), selected_shape, source), shape)
