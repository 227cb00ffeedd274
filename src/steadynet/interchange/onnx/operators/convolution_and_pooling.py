"""Convolutions and poolings of ONNX: their windows, and paddings that PyTorch does not have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.graph.operations import AveragePool, Convolution, MaxPool, Pad, Rectifier, Shape
from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import Builder, Call, Value

Pair = tuple[int, int]


def convolution(call: Call, builder: Builder) -> Value:
    """Conv: zeros around the image that are not the same on both sides become zeros around the kernel."""
    source, weight = _images(call), call.weights(1)
    bias = None if call.input(2) is None else call.weights(2)
    if weight.dim() != 4:
        raise UnsupportedError("a convolution that is not 2-d")
    kernel = (weight.shape[2], weight.shape[3])
    if _pair(call, "kernel_shape", kernel) != kernel:
        raise UnsupportedError("a kernel of another shape than said")
    stride, dilation = _pair(call, "strides", (1, 1)), _pair(call, "dilations", (1, 1))
    pads = _pads(call, source.shape, kernel, stride, dilation)
    before = builder.producer(source)
    if before and isinstance(before.operation, Pad) and before.operation.widths[0] == (0, 0):
        pads = [(a + c, b + d) for (a, b), (c, d) in zip(pads, before.operation.widths[1:], strict=True)]
        (_, (top, bottom), (left, right)), (_, channels, height, width) = before.operation.widths, source.shape
        source = Value(before.inputs[0], (1, channels, height - top - bottom, width - left - right))
    shape = tuple(
        _length(source.shape[2 + axis], kernel[axis], stride[axis], dilation[axis], pads[axis]) for axis in (0, 1)
    )
    padding = (max(pads[0]), max(pads[1]))
    weight = _with_zeros(weight, pads, padding, dilation, builder)
    operation = Convolution(weight, bias, stride, padding, dilation, int(call.options.get("group", 1)))
    return builder.add(operation, (1, weight.shape[0], *shape), source)


def max_pool(call: Call, builder: Builder) -> Value:
    """MaxPool; where only one side is padded, zeros do for what is never negative."""
    if call.options.get("storage_order", 0):
        raise UnsupportedError("MaxPool in column-major order")
    source = _images(call)
    windows = _windows(call, source)
    before = builder.producer(source)
    if not windows.even and before and before.operation == Rectifier():
        source, windows = _padded(builder, source, windows)
    if not windows.even:
        raise UnsupportedError("MaxPool with other padding before than after")
    return builder.add(MaxPool(windows.options()), (*source.shape[:2], *windows.shape()), source)


def average_pool(call: Call, builder: Builder) -> Value:
    """AveragePool; where only one side is padded, by zeros, and a factor for those that do not count."""
    source, counted = _images(call), bool(call.options.get("count_include_pad", 0))
    windows = _windows(call, source)
    if windows.dilation != (1, 1) or (windows.ceil and counted and windows.pads != windows.before):
        raise UnsupportedError("AveragePool with dilations, or uneven and rounded up")
    factor = torch.tensor(1.0)
    if windows.pads != windows.before and (counted or not windows.even):
        whole = F.pad(torch.ones(1, 1, *source.shape[2:]), [*windows.pads[1], *windows.pads[0]])
        if not counted:
            factor = 1 / F.avg_pool2d(whole, windows.kernel, windows.stride)
        source, windows = _padded(builder, source, windows)
    options = windows.options() | {"count_include_pad": counted}
    del options["dilation"]
    result = builder.add(AveragePool(options), (*source.shape[:2], *windows.shape()), source)
    return builder.scaled(result, factor, torch.tensor(0.0))


def global_average_pool(call: Call, builder: Builder) -> Value:
    """GlobalAveragePool."""
    source = _images(call)
    operation = AveragePool({"kernel_size": source.shape[2:]})
    return builder.add(operation, (*source.shape[:2], 1, 1), source)


def _images(call: Call) -> Value:
    source = call.data()
    if len(source.shape) != 4 or source.shape[0] != 1:
        raise UnsupportedError(f"{call.kind} of a tensor of shape {source.shape}, not (batch, channels, height, width)")
    return source


def _pair(call: Call, option: str, default: Pair | None) -> Pair:
    found = call.integers(option) or default
    if found is None or len(found) != 2 or not all(0 < number < 2**16 for number in found):
        raise UnsupportedError(f"{call.kind} with {option} = {found}")
    return (found[0], found[1])


def _pads(call: Call, shape: Shape, kernel: Pair, stride: Pair, dilation: Pair) -> list[Pair]:
    """Zeros before and after, along each axis of the image."""
    mode = call.options.get("auto_pad", b"NOTSET")
    if mode == b"NOTSET":
        pads = call.integers("pads") or [0, 0, 0, 0]
        if len(pads) != 4 or not all(0 <= pad < 2**12 for pad in pads):
            raise UnsupportedError(f"pads {pads}")
        return [(pads[0], pads[2]), (pads[1], pads[3])]
    if mode not in (b"VALID", b"SAME_UPPER", b"SAME_LOWER"):
        raise UnsupportedError(f"auto_pad {mode!r}")
    result = []
    for axis in (0, 1):
        extent, length = dilation[axis] * (kernel[axis] - 1) + 1, shape[2 + axis]
        total = 0 if mode == b"VALID" else max((-(-length // stride[axis]) - 1) * stride[axis] + extent - length, 0)
        less, more = total // 2, total - total // 2
        result.append((less, more) if mode == b"SAME_UPPER" else (more, less))
    return result


def _length(length: int, kernel: int, stride: int, dilation: int, pads: Pair, ceil: bool = False) -> int:
    room = length + sum(pads) - dilation * (kernel - 1) - 1
    if room < 0:
        raise UnsupportedError("a window larger than its image")
    count = -(-room // stride) + 1 if ceil else room // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= length + pads[0] else count  # none starts behind the image


@dataclass(frozen=True)
class _Windows:
    """Where a pooling looks: windows on an image with some padding before and after, along each axis."""

    image: Pair
    kernel: Pair
    stride: Pair
    dilation: Pair
    pads: list[Pair]
    ceil: bool

    def shape(self) -> Pair:
        """How many windows, along each axis."""
        height, width = (
            _length(self.image[i], self.kernel[i], self.stride[i], self.dilation[i], self.pads[i], self.ceil)
            for i in (0, 1)
        )
        return height, width

    @property
    def before(self) -> list[Pair]:
        """As much padding after as before."""
        return [(pad[0], pad[0]) for pad in self.pads]

    @property
    def even(self) -> bool:
        """Whether PyTorch has these windows, where what lies outside does not count: they must only be as many."""
        return any(replace(self, pads=self.before, ceil=ceil).shape() == self.shape() for ceil in (True, False))

    def options(self) -> dict[str, Any]:
        """The keyword arguments of PyTorch's poolings; only if even."""
        padding, ceil = (self.pads[0][0], self.pads[1][0]), self.ceil
        if self.pads != self.before:
            ceil = replace(self, pads=self.before, ceil=True).shape() == self.shape()
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        return dict(zip(names, (self.kernel, self.stride, padding, self.dilation, ceil), strict=True))


def _windows(call: Call, source: Value) -> _Windows:
    kernel, stride = _pair(call, "kernel_shape", None), _pair(call, "strides", (1, 1))
    dilation, ceil = _pair(call, "dilations", (1, 1)), bool(call.options.get("ceil_mode", 0))
    pads = _pads(call, source.shape, kernel, stride, dilation)
    return _Windows((source.shape[2], source.shape[3]), kernel, stride, dilation, pads, ceil)


def _padded(builder: Builder, source: Value, windows: _Windows) -> tuple[Value, _Windows]:
    """The same windows on an image that has its padding, of zeros, already."""
    height, width = (length + sum(pad) for length, pad in zip(windows.image, windows.pads, strict=True))
    result = builder.add(Pad(((0, 0), *windows.pads)), (*source.shape[:2], height, width), source)
    return result, replace(windows, image=(height, width), pads=[(0, 0), (0, 0)])


def _with_zeros(weight: Tensor, pads: list[Pair], padding: Pair, dilation: Pair, builder: Builder) -> Tensor:
    """The kernel with zeros where the image lacks them on one side."""
    missing = [(padding[axis] - pads[axis][0], padding[axis] - pads[axis][1]) for axis in (0, 1)]
    if missing == [(0, 0), (0, 0)]:
        return weight
    if dilation != (1, 1):
        raise UnsupportedError("a dilated convolution with other padding before than after")
    height, width = weight.shape[2] + sum(missing[0]), weight.shape[3] + sum(missing[1])
    builder.spend(weight.shape[0] * weight.shape[1] * height * width)
    return F.pad(weight, [*missing[1], *missing[0]])
