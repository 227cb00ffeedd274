"""ONNX convolutions and poolings. Unlike PyTorch, ONNX can pad one side of an image more than the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.graph.operations import Convolution, Pair, Shape
from steadynet.graph.pooling import AveragePool, MaxPool
from steadynet.graph.rearrangements import Pad, Take
from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import GraphBuilder, GraphValue
from steadynet.interchange.onnx.node import OnnxNode

_ROUNDINGS_OF_CORRECTION = 2  # of the factor for zeros that do not count: two quotients


def convolution(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Conv. If one side of the image has less padding than the other, the kernel is padded instead."""
    source, weight = _images(node), node.weights(1)
    bias = None if node.input(2) is None else node.weights(2)
    if weight.dim() != 4:
        raise UnsupportedError("a convolution that is not 2-d")
    kernel = (weight.shape[2], weight.shape[3])
    if _pair(node, "kernel_shape", kernel) != kernel:
        raise UnsupportedError("a kernel whose shape differs from kernel_shape")
    stride, dilation = _pair(node, "strides", (1, 1)), _pair(node, "dilations", (1, 1))
    pads = _pads(node, source.shape, kernel, stride, dilation)
    before = builder.producer(source)
    if before and isinstance(before.operation, Pad) and before.operation.widths[0] == (0, 0):
        # the zeros of a Pad node before it become padding of the convolution
        pads = [(a + c, b + d) for (a, b), (c, d) in zip(pads, before.operation.widths[1:], strict=True)]
        (_, (top, bottom), (left, right)), (_, channels, height, width) = before.operation.widths, source.shape
        source = GraphValue(before.inputs[0], (1, channels, height - top - bottom, width - left - right))
    shape = tuple(
        _window_count(source.shape[2 + axis], kernel[axis], stride[axis], dilation[axis], pads[axis]) for axis in (0, 1)
    )
    _check_window_count(shape)
    padding = (max(pads[0]), max(pads[1]))
    weight = _padded_kernel(weight, pads, padding, dilation, builder)
    operation = Convolution(
        weight, bias, stride, padding, dilation, node.attributes.integer("group", 1), roundings=node.rounded(1, 2)
    )
    return builder.add(operation, (1, weight.shape[0], *shape), source)


def max_pool(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """MaxPool. Where PyTorch does not have its windows, they are written out side by side (``_Windows.apart``)."""
    if node.attributes.flag("storage_order"):
        raise UnsupportedError("MaxPool in column-major order")
    source = _images(node)
    windows = _windows(node, source)
    builder.reserve(sum(count * size for count, size in zip(windows.count(), windows.kernel, strict=True)))
    apart = [windows.apart(axis) for axis in (0, 1)]
    shape, found = (*source.shape[:2], *windows.count()), windows.in_torch()
    if found is not None:
        operation = MaxPool(windows.kernel, windows.stride, found.padding, windows.dilation, found.ceil_mode)
        return builder.add(operation, shape, source)
    source = builder.add(Take(2, apart[0]), (*source.shape[:2], len(apart[0]), source.shape[3]), source)
    source = builder.add(Take(3, apart[1]), (*source.shape[:3], len(apart[1])), source)
    return builder.add(MaxPool(windows.kernel, windows.kernel), shape, source)


def average_pool(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """AveragePool. Padding that PyTorch does not have is written out; a factor corrects for zeros that do not count."""
    source, counted = _images(node), node.attributes.flag("count_include_pad")
    windows = _windows(node, source)
    factor, found = torch.ones((), dtype=builder.dtype), windows.in_torch()
    if windows.dilation != (1, 1) or (windows.ceil_mode and counted and not (windows.symmetric and found)):
        raise UnsupportedError("AveragePool with dilations, or with ceil_mode and uneven or wide padding that counts")
    if found is None or (counted and not windows.symmetric):
        pads = windows.covered()
        if not counted:
            inside = F.pad(torch.ones(1, 1, *source.shape[2:], dtype=builder.dtype), [*pads[1], *pads[0]])
            factor = 1 / F.avg_pool2d(inside, windows.kernel, windows.stride)
        image = tuple(length + sum(pad) for length, pad in zip(windows.image, pads, strict=True))
        source = builder.add(Pad(((0, 0), *pads)), (*source.shape[:2], *image), source)
        found = _TorchArguments((0, 0), ceil_mode=False)
    operation = AveragePool(windows.kernel, windows.stride, found.padding, found.ceil_mode, count_include_pad=counted)
    pooled = builder.add(operation, (*source.shape[:2], *windows.count()), source)
    return builder.multiply(pooled, factor, roundings=0 if factor.dim() == 0 else _ROUNDINGS_OF_CORRECTION)


def global_average_pool(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """GlobalAveragePool: one window, as large as the image."""
    source = _images(node)
    image = (source.shape[2], source.shape[3])
    return builder.add(AveragePool(image, image), (*source.shape[:2], 1, 1), source)


def _images(node: OnnxNode) -> GraphValue:
    source = node.value()
    if len(source.shape) != 4 or source.shape[0] != 1:
        raise UnsupportedError(
            f"{node.op_type} of a tensor of shape {source.shape}, not (batch, channels, height, width)"
        )
    return source


def _pair(node: OnnxNode, attribute: str, default: Pair | None) -> Pair:
    """Return a positive number for each axis of the image."""
    found = node.integers(attribute) or default
    if found is None or len(found) != 2 or not all(0 < number < 2**16 for number in found):
        raise UnsupportedError(f"{node.op_type} with {attribute} = {found}")
    return (found[0], found[1])


def _pads(node: OnnxNode, shape: Shape, kernel: Pair, stride: Pair, dilation: Pair) -> list[Pair]:
    """Return the padding before and after the image, along each of its axes."""
    mode = node.attributes.string("auto_pad", "NOTSET")
    if mode == "NOTSET":
        pads = node.integers("pads") or [0, 0, 0, 0]
        if len(pads) != 4 or not all(0 <= pad < 2**12 for pad in pads):
            raise UnsupportedError(f"pads {pads}")
        return [(pads[0], pads[2]), (pads[1], pads[3])]
    if mode not in ("VALID", "SAME_UPPER", "SAME_LOWER"):
        raise UnsupportedError(f"auto_pad {mode!r}")
    result = []
    for axis in (0, 1):
        extent, length = dilation[axis] * (kernel[axis] - 1) + 1, shape[2 + axis]
        total = 0 if mode == "VALID" else max((-(-length // stride[axis]) - 1) * stride[axis] + extent - length, 0)
        less, more = total // 2, total - total // 2
        result.append((less, more) if mode == "SAME_UPPER" else (more, less))
    return result


def _window_count(length: int, kernel: int, stride: int, dilation: int, pads: Pair, ceil_mode: bool = False) -> int:
    """Return how many windows there are along one axis; 0 if a window is larger than the image."""
    room = length + sum(pads) - dilation * (kernel - 1) - 1
    if room < 0:
        return 0
    count = -(-room // stride) + 1 if ceil_mode else room // stride + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= length + pads[0] else count  # none starts after the image


def _check_window_count(count: Shape) -> None:
    if 0 in count:
        raise UnsupportedError("a window larger than its image")


class _TorchArguments(NamedTuple):
    """Arguments of PyTorch's poolings, which pad both sides alike."""

    padding: Pair
    ceil_mode: bool


@dataclass(frozen=True)
class _Windows:
    """The windows of a pooling on an image, with some padding before and after along each axis."""

    image: Pair
    kernel: Pair
    stride: Pair
    dilation: Pair
    pads: list[Pair]
    ceil_mode: bool

    def count(self) -> Pair:
        """Return how many windows there are along each axis."""
        height, width = (
            _window_count(
                self.image[axis], self.kernel[axis], self.stride[axis], self.dilation[axis], self.pads[axis],
                self.ceil_mode,
            )
            for axis in (0, 1)
        )  # fmt: skip
        return height, width

    @property
    def symmetric(self) -> bool:
        """Whether there is as much padding after the image as before it."""
        return all(before == after for before, after in self.pads)

    def in_torch(self) -> _TorchArguments | None:
        """Return PyTorch's arguments for these windows, or None if it does not have them.

        PyTorch pads both sides by what comes before the image here. Where padding does not count, these are the same
        windows as long as there are as many of them.
        """
        padding = (self.pads[0][0], self.pads[1][0])
        if any(pad > size // 2 for pad, size in zip(padding, self.kernel, strict=True)):
            return None  # PyTorch refuses more than half a kernel
        if self.symmetric:
            return _TorchArguments(padding, self.ceil_mode)
        both_sides = [(before, before) for before, _ in self.pads]
        for ceil_mode in (True, False):
            if replace(self, pads=both_sides, ceil_mode=ceil_mode).count() == self.count():
                return _TorchArguments(padding, ceil_mode)
        return None

    def covered(self) -> list[Pair]:
        """Return the padding that the windows reach, also those that ``ceil_mode`` adds, along each axis."""
        result = []
        for axis, count in enumerate(self.count()):
            before = self.pads[axis][0]
            end = (count - 1) * self.stride[axis] + self.dilation[axis] * (self.kernel[axis] - 1) + 1
            result.append((before, max(0, end - before - self.image[axis])))
        return result

    def apart(self, axis: int) -> tuple[int, ...]:
        """Return the pixels that each window sees along one axis, window by window.

        Where a window reaches into the padding, it sees a pixel of its own once more, which changes no maximum.
        """
        length, cells, result = self.image[axis], range(self.kernel[axis]), list[int]()
        for place in range(self.count()[axis]):
            start = place * self.stride[axis] - self.pads[axis][0]
            pixels = [start + cell * self.dilation[axis] for cell in cells]
            inside = [pixel for pixel in pixels if 0 <= pixel < length]
            if not inside:
                raise UnsupportedError("a dilated window that sees nothing but padding")
            result += [pixel if 0 <= pixel < length else inside[0] for pixel in pixels]
        return tuple(result)


def _windows(node: OnnxNode, source: GraphValue) -> _Windows:
    kernel, stride = _pair(node, "kernel_shape", None), _pair(node, "strides", (1, 1))
    dilation, ceil_mode = _pair(node, "dilations", (1, 1)), node.attributes.flag("ceil_mode")
    pads = _pads(node, source.shape, kernel, stride, dilation)
    if any(max(pad) >= size for pad, size in zip(pads, kernel, strict=True)):
        raise UnsupportedError("padding that is as wide as the window, which ONNX Runtime refuses")
    windows = _Windows((source.shape[2], source.shape[3]), kernel, stride, dilation, pads, ceil_mode)
    _check_window_count(windows.count())
    return windows


def _padded_kernel(weight: Tensor, pads: list[Pair], padding: Pair, dilation: Pair, builder: GraphBuilder) -> Tensor:
    """Return the kernel with zeros where ``padding``, on both sides of the image, exceeds the padding ``pads``."""
    excess = [(padding[axis] - pads[axis][0], padding[axis] - pads[axis][1]) for axis in (0, 1)]
    if excess == [(0, 0), (0, 0)]:
        return weight
    if dilation != (1, 1):
        raise UnsupportedError("a dilated convolution with other padding before than after")
    height, width = weight.shape[2] + sum(excess[0]), weight.shape[3] + sum(excess[1])
    builder.reserve(weight.shape[0] * weight.shape[1] * height * width)
    return F.pad(weight, [*excess[1], *excess[0]])
