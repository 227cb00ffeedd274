"""What moves numbers of ONNX about and computes nothing: shapes, axes, slices, joins."""

from __future__ import annotations

import itertools
import math

from steadynet.graph.operations import Concat, Pad, Take
from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import Array, Builder, Call, Value, floats, front, held


def flatten(call: Call, builder: Builder) -> Value:
    """Flatten."""
    source = call.data()
    axis = int(call.options.get("axis", 1))
    axis = len(source.shape) if axis == len(source.shape) else front(axis, len(source.shape))
    return builder.reshaped(source, (math.prod(source.shape[:axis]), math.prod(source.shape[axis:])))


def reshape(call: Call, builder: Builder) -> Value:
    """Reshape: 0 keeps a length, −1 is what remains."""
    source, wanted = call.data(), call.integers("shape", 1)
    if wanted is None or (call.options.get("allowzero", 0) and 0 in wanted):
        raise UnsupportedError("a reshape without a shape")
    if any(length == 0 and axis >= len(source.shape) for axis, length in enumerate(wanted)):
        raise UnsupportedError(f"a reshape of {source.shape} to {wanted}")
    shape = [length or source.shape[axis] for axis, length in enumerate(wanted)]
    if -1 in shape:
        rest = math.prod(length for length in shape if length != -1)
        shape[shape.index(-1)] = math.prod(source.shape) // rest if rest > 0 else 0
    if any(length < 1 for length in shape):
        raise UnsupportedError(f"a reshape of {source.shape} to {wanted}")
    return builder.reshaped(source, tuple(shape))


def transpose(call: Call, builder: Builder) -> Value:
    """Transpose."""
    axes = len(call.data().shape)
    return builder.permuted(call.data(), call.integers("perm") or list(reversed(range(axes))))


def squeeze(call: Call, builder: Builder) -> Value:
    """Squeeze."""
    source, axes = call.data(), call.integers("axes", 1)
    count = len(source.shape)
    chosen = (
        {front(axis, count) for axis in axes} if axes is not None else {i for i in range(count) if source.shape[i] == 1}
    )
    return builder.reshaped(source, tuple(length for axis, length in enumerate(source.shape) if axis not in chosen))


def unsqueeze(call: Call, builder: Builder) -> Value:
    """Unsqueeze."""
    source, axes = call.data(), call.integers("axes", 1) or []
    count = len(source.shape) + len(axes)
    chosen = {front(axis, count) for axis in axes}
    if len(chosen) != len(axes) or count > 8:
        raise UnsupportedError(f"Unsqueeze with axes {axes}")
    rest = iter(source.shape)
    return builder.reshaped(source, tuple(1 if axis in chosen else next(rest) for axis in range(count)))


def concatenate(call: Call, builder: Builder) -> Value:
    """Concat, never along the batch."""
    parts = [call.data(index) for index in range(len(call.inputs))]
    axis = call.axis(1, len(parts[0].shape))
    rest = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
    if len(rest) > 1 or len({len(part.shape) for part in parts}) > 1:
        raise UnsupportedError("a concatenation of these shapes along this axis")
    shape = (*parts[0].shape[:axis], sum(part.shape[axis] for part in parts), *parts[0].shape[axis + 1 :])
    if axis == 0 and all(held(part.shape) != part.shape for part in parts):
        raise UnsupportedError("a concatenation along the batch axis")
    if axis == 0 or held(shape) == shape:  # no batch: one in front
        parts, axis = [builder.reshaped(part, (1, *part.shape)) for part in parts], axis + 1
    joined = (1, *parts[0].shape[1:axis], sum(part.shape[axis] for part in parts), *parts[0].shape[axis + 1 :])
    return builder.reshaped(builder.add(Concat(axis), joined, *parts), shape)


def pad(call: Call, builder: Builder) -> Value:
    """Pad with zeros."""
    source, pads, value = call.data(), call.integers("pads", 1), call.constant(2)
    number = float(call.options.get("value", 0.0)) if value is None else float(floats(value).reshape(()))
    if call.options.get("mode", b"constant") != b"constant" or number != 0:
        raise UnsupportedError("padding with something else than zeros")
    count = len(source.shape)
    axes = [front(axis, count) for axis in call.integers("axes", 3) or range(count)]
    if pads is None or len(pads) != 2 * len(axes) or min(pads) < 0 or len(set(axes)) < len(axes):
        raise UnsupportedError(f"pads {pads}")
    widths = {axis: (pads[index], pads[index + len(axes)]) for index, axis in enumerate(axes)}
    every = [widths.get(axis, (0, 0)) for axis in range(count)]
    dropped = count - len(held(source.shape))
    if any(every[axis] != (0, 0) for axis in range(dropped)):
        raise UnsupportedError("padding of the batch axis")
    shape = tuple(length + sum(width) for length, width in zip(source.shape, every, strict=True))
    return source if shape == source.shape else builder.add(Pad(tuple(every[dropped:])), shape, source)


def take_slice(call: Call, builder: Builder) -> Value:
    """Slice: begin, end and step along some axes."""
    result, starts, ends = call.data(), call.integers("starts", 1), call.integers("ends", 2)
    if starts is None or ends is None:
        raise UnsupportedError("a slice without beginning or end")
    axes = call.integers("axes", 3) or list(range(len(starts)))
    steps = call.integers("steps", 4) or [1] * len(starts)
    axes = [front(axis, len(result.shape)) for axis in axes]
    if not len(starts) == len(ends) == len(set(axes)) == len(axes) == len(steps) or 0 in steps:
        raise UnsupportedError(f"a slice along axes {axes[:8]} with other bounds or steps than axes")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        result = _taken(builder, result, axis, tuple(range(result.shape[axis])[start:end:step]))
    return result


def gather(call: Call, builder: Builder) -> Value:
    """Gather: the positions of a constant, along one axis; a single number removes the axis."""
    source, index = call.data(), call.constant(1)
    axis = call.axis(0, len(source.shape))
    length = source.shape[axis]
    if index is None or index.dtype.kind not in "iu" or not _inside(index, length):
        raise UnsupportedError(f"a gather outside an axis of length {length}")
    builder.spend(index.size)
    positions = tuple(int(place) % length for place in index.reshape(-1))
    taken = _taken(builder, source, axis, positions)
    return builder.reshaped(taken, (*source.shape[:axis], *index.shape, *source.shape[axis + 1 :]))


def _inside(index: Array, length: int) -> bool:
    return index.size > 0 and bool(-length <= index.min() and index.max() < length)


def split(call: Call, builder: Builder) -> list[Value]:
    """Split: parts along one axis, of given lengths or all alike but for the last."""
    source, lengths = call.data(), call.integers("split", 1)
    axis = call.axis(0, len(source.shape))
    length, count = source.shape[axis], int(call.options.get("num_outputs", call.outputs))
    if lengths is None and 0 < count <= length:
        part = -(-length // count)
        lengths = [min(part, length - start) for start in range(0, length, part)]
    if not lengths or len(lengths) != call.outputs or sum(lengths) != length or min(lengths) < 1:
        raise UnsupportedError(f"a split of {length} into {(lengths or [])[:8]}")
    ends = itertools.accumulate(lengths)
    parts = zip(lengths, ends, strict=True)
    return [_taken(builder, source, axis, tuple(range(end - size, end))) for size, end in parts]


def _taken(builder: Builder, source: Value, axis: int, positions: tuple[int, ...]) -> Value:
    """These positions along an axis."""
    if positions == tuple(range(source.shape[axis])):
        return source
    shape = (*source.shape[:axis], len(positions), *source.shape[axis + 1 :])
    if held(source.shape) == source.shape:  # no batch: one in front, since the axis may be left with length 1
        source, axis = builder.reshaped(source, (1, *source.shape)), axis + 1
    if axis == 0:
        raise UnsupportedError("a choice along the batch axis")
    taken = builder.add(
        Take(axis, positions), (1, *source.shape[1:axis], len(positions), *source.shape[axis + 1 :]), source
    )
    return builder.reshaped(taken, shape)
