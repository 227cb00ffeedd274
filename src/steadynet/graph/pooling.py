"""Poolings: the operations that look at an image through windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.graph.operations import Monotone, Pair, Shape
from steadynet.graph.rounding import Rounding


@dataclass(frozen=True)
class AveragePool(Monotone):
    """The mean over windows, with the arguments of ``F.avg_pool2d``."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor: int | None = None

    def apply(self, *inputs: Tensor) -> Tensor:
        return F.avg_pool2d(
            inputs[0], self.kernel, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor
        )

    def rounding(self, *largest: Tensor) -> Rounding:
        terms = self.kernel[0] * self.kernel[1] + 2  # the sum, the divisor and the quotient
        return Rounding(self.apply(largest[0]), terms, terms)

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        with torch.enable_grad():  # the transpose of a linear map is its vector-Jacobian product
            point = torch.zeros(len(rows), *shapes[0], dtype=rows.dtype, device=rows.device, requires_grad=True)
            image = self.apply(point)
        return [torch.autograd.grad(image, point, rows, create_graph=rows.requires_grad)[0]]


@dataclass(frozen=True)
class MaxPool(Monotone):
    """The maximum over windows, with the arguments of ``F.max_pool2d``."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    ceil_mode: bool = False

    def apply(self, *inputs: Tensor) -> Tensor:
        return F.max_pool2d(inputs[0], self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)

    def rounding(self, *largest: Tensor) -> Rounding:
        return Rounding(self.apply(largest[0]), 0, self.kernel[0] * self.kernel[1])  # windows overlap: added up

    def candidates(self, value: Tensor) -> Tensor:
        """Return the elements that each window sees, of which the output is the maximum.

        Args:
            value: The input, (n, channels, height, width).

        Returns:
            The elements, (n, channels, candidates, output height, output width); −∞ where a window reaches outside.
        """
        output = self.apply(value).shape[2:]
        kernel, dilation, stride, before = self.kernel, self.dilation, self.stride, self.padding
        extent = [(output[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1 for axis in (0, 1)]
        after = [extent[axis] - before[axis] - value.shape[2 + axis] for axis in (0, 1)]
        padded = F.pad(value, [before[1], after[1], before[0], after[0]], value=-torch.inf)
        windows = F.unfold(padded, kernel, dilation, 0, stride)
        return windows.view(len(value), value.shape[1], -1, *output)
