"""The operations for which bounds are known.

A network becomes a :class:`~steadynet.graph.graph.Graph` of these operations (:mod:`steadynet.graph.pooling` and
:mod:`steadynet.graph.rearrangements` hold some of them). Each one is a class of a few lines that says what it computes
at a point, which interval it maps a box to, how it rounds and, if it is linear, what its transpose is. The first axis
of every tensor is the batch. The weights are those of the network itself, not copies, so certified training sends
gradients through these rules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.graph.rounding import Rounding
from steadynet.networks.input_gradient import MOST_SUB_PIXEL_CHANNELS, sub_pixel_transpose

Shape = tuple[int, ...]
Pair = tuple[int, int]  # a number for the rows and one for the columns of an image
FAST_TRANSPOSES = True  # whether each transposed convolution takes the way that is fast for its channels
FEW_CHANNELS = 4  # so many are those of images: one matrix product, and sums of its columns, are fastest


class Interval(NamedTuple):
    """Element-wise bounds of a tensor: lower ≤ value ≤ upper."""

    lower: Tensor
    upper: Tensor

    def of(self, rows: Tensor | slice) -> Interval:
        """The bounds of some rows of the batch."""
        return Interval(self.lower[rows], self.upper[rows])

    def unstable(self) -> Tensor:
        """Where the value may have either sign; a mask."""
        return (self.lower < 0) & (self.upper > 0)

    def stable(self) -> Tensor:
        """Where the sign is known; a mask. A bound that is not a number is not stable."""
        return (self.lower >= 0) | (self.upper <= 0)

    def largest(self) -> Tensor:
        """How large the value can be, without its sign."""
        return torch.maximum(self.lower.abs(), self.upper.abs())


class Operation(ABC):
    """One kind of operation.

    >>> double = Scale(torch.tensor(2.0), torch.tensor(1.0))
    >>> double.apply(torch.tensor([[3.0]])), double.interval(Interval(torch.tensor([[0.0]]), torch.tensor([[1.0]])))
    (tensor([[7.]]), Interval(lower=tensor([[1.]]), upper=tensor([[3.]])))
    """

    @abstractmethod
    def apply(self, *inputs: Tensor) -> Tensor:
        """Compute the value at a point.

        Args:
            inputs: The values that the operation reads, each (batch, *shape).
        """

    def linear(self, *inputs: Tensor) -> Tensor:
        """Compute the value without the operation's constants, which an affine operation adds: W · x for Wx + b."""
        return self.apply(*inputs)

    @abstractmethod
    def interval(self, *inputs: Interval) -> Interval:
        """Compute bounds of the value that hold while every input stays in its interval."""

    @abstractmethod
    def rounding(self, *largest: Tensor) -> Rounding | None:
        """Describe how this operation rounds, while no input is larger than ``largest`` without its sign.

        Returns:
            The sums that it computes; None if it only moves or compares numbers, forward and transposed.
        """

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        """Rewrite linear functions of the output as linear functions of the inputs: the transpose of the operation.

        Args:
            rows: The coefficients of ``n`` linear functions, (n, *output shape).
            shapes: The shape of each input, without the batch.

        Returns:
            The coefficients for each input, (n, *input shape).

        Raises:
            TypeError: The operation is not linear. Bounds enclose ReLU and maximum between lines first.
        """
        raise TypeError(f"{type(self).__name__} is not linear")

    def constant(self, rows: Tensor, dtype: torch.dtype) -> Tensor | float:
        """Compute what the operation's constants add to linear functions of the output, (n,), in this precision."""
        return 0.0


class Affine(Operation):
    """x ↦ Wx + b. A box of centre c and half width r becomes the box of centre Wc + b and half width |W|r."""

    @abstractmethod
    def spread(self, half_width: Tensor) -> Tensor:
        """Compute |W| · half width."""

    def size(self, largest: Tensor) -> Tensor:
        """Compute |W| · largest + |b|: how large the terms of the sum can be if no input is larger than ``largest``."""
        return self.spread(largest) + self.apply(torch.zeros_like(largest[:1])).abs()

    def interval(self, *inputs: Interval) -> Interval:
        ((lower, upper),) = inputs
        centre, spread = self.apply((lower + upper) / 2), self.spread((upper - lower) / 2)
        return Interval(centre - spread, centre + spread)


class Monotone(Operation):
    """An operation that never falls when an input rises, so it maps the ends of an interval to the ends."""

    def interval(self, *inputs: Interval) -> Interval:
        return Interval(self.apply(*(bound.lower for bound in inputs)), self.apply(*(bound.upper for bound in inputs)))


@dataclass(frozen=True)
class Dense(Affine):
    """A dense layer on the last axis: weight (out, in); bias (out) or None.

    ``roundings`` is how many roundings the weight saw if it was computed from other constants.
    """

    weight: Tensor
    bias: Tensor | None
    roundings: int = 0

    def apply(self, *inputs: Tensor) -> Tensor:
        return F.linear(inputs[0], self.weight, self.bias)

    def linear(self, *inputs: Tensor) -> Tensor:
        return F.linear(inputs[0], self.weight)

    def spread(self, half_width: Tensor) -> Tensor:
        return F.linear(half_width, self.weight.abs())

    def size(self, largest: Tensor) -> Tensor:
        spread = self.spread(largest)
        return spread if self.bias is None else spread + self.bias.abs()

    def rounding(self, *largest: Tensor) -> Rounding:
        outputs, inputs = self.weight.shape
        return Rounding(self.size(largest[0]), inputs + 1 + self.roundings, outputs, self.roundings)

    def read(self, there: Tensor) -> Tensor:
        """Count, (properties,): how many inputs that are ``there``, a mask, one number of the output reads at most."""
        return there.sum(-1).flatten(1).amax(1) if there.dim() > 2 else there.sum(-1)

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        return [rows @ self.weight]

    def constant(self, rows: Tensor, dtype: torch.dtype) -> Tensor | float:
        if self.bias is None:
            return 0.0
        leading = rows.to(dtype) if rows.dim() == 2 else rows.flatten(1, -2).sum(1, dtype=dtype)
        return leading @ self.bias.to(dtype)


@dataclass(frozen=True)
class Convolution(Affine):
    """A 2-d convolution: weight (out, in / groups, kernel height, kernel width); bias (out) or None.

    ``roundings`` is how many roundings the weight saw if it was computed from other constants.
    """

    weight: Tensor
    bias: Tensor | None
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    roundings: int = 0

    def apply(self, *inputs: Tensor) -> Tensor:
        return F.conv2d(inputs[0], self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def linear(self, *inputs: Tensor) -> Tensor:
        return F.conv2d(inputs[0], self.weight, None, self.stride, self.padding, self.dilation, self.groups)

    def spread(self, half_width: Tensor) -> Tensor:
        return F.conv2d(half_width, self.weight.abs(), None, self.stride, self.padding, self.dilation, self.groups)

    def size(self, largest: Tensor) -> Tensor:
        spread = self.spread(largest)
        return spread if self.bias is None else spread + self.bias.abs()[:, None, None]

    def rounding(self, *largest: Tensor) -> Rounding:
        terms = self.weight.shape[1:].numel() + 1 + self.roundings
        return Rounding(self.size(largest[0]), terms, self._transposed_terms, self.roundings)

    def read(self, there: Tensor) -> Tensor:
        """Count, (properties,): how many inputs that are ``there``, a mask, one number of the output reads at most."""
        kernel = torch.ones(self.groups, *self.weight.shape[1:], dtype=torch.float32, device=there.device)
        counts = F.conv2d(there.float(), kernel, None, self.stride, self.padding, self.dilation, self.groups)
        return counts.amax((1, 2, 3)).round()

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        return [self.transposed(rows, shapes[0])]

    def constant(self, rows: Tensor, dtype: torch.dtype) -> Tensor | float:
        if self.bias is None:
            return 0.0
        # What rounding() says of the transposed terms counts for the bias as well, so a quick sum of as many will do.
        if rows.shape[2:].numel() <= self._transposed_terms:
            total = rows.sum((2, 3))
        else:
            total = (rows.sum(3) if rows.shape[3] <= self._transposed_terms else rows).flatten(2).sum(2, dtype=dtype)
        return total.to(dtype) @ self.bias.to(dtype)

    @property
    def _transposed_terms(self) -> int:
        """How many terms one coefficient of a linear function of the input is the sum of.

        A pixel is seen from every channel of the output, and from as many of its pixels as steps of the stride fit into
        the kernel. Other products are with zeros, if there are any, and round nothing.
        """
        kernel = [-(-length // step) for length, step in zip(self.weight.shape[2:], self.stride, strict=True)]
        seen = kernel if self.dilation == (1, 1) else self.weight.shape[2:]
        return self.weight.shape[0] // self.groups * seen[0] * seen[1]

    def transposed(self, rows: Tensor, shape: Shape) -> Tensor:
        """Apply the transposed convolution; the result has exactly the input's ``shape``."""
        channels, plain = shape[0], self.groups == 1 and self.dilation == (1, 1)
        if FAST_TRANSPOSES and plain and channels <= FEW_CHANNELS:
            columns = self.weight.flatten(1).t() @ rows.flatten(2)
            return F.fold(columns, shape[1:], self.weight.shape[2:], stride=self.stride, padding=self.padding)
        few = channels <= MOST_SUB_PIXEL_CHANNELS or not FAST_TRANSPOSES
        if few and plain and self.stride[0] == self.stride[1] > 1:
            return sub_pixel_transpose(rows, self.weight, self.stride[0], self.padding, shape[1:])
        kernel = [
            dilation * (length - 1) + 1 for dilation, length in zip(self.dilation, self.weight.shape[2:], strict=True)
        ]
        covered = [
            (rows.shape[2 + axis] - 1) * self.stride[axis] - 2 * self.padding[axis] + kernel[axis] for axis in (0, 1)
        ]
        extra = [shape[1 + axis] - covered[axis] for axis in (0, 1)]
        return F.conv_transpose2d(rows, self.weight, None, self.stride, self.padding, extra, self.groups, self.dilation)


@dataclass(frozen=True)
class Scale(Affine):
    """x · factor + shift with constants that broadcast: batch norm, normalisation, constants added or multiplied.

    Attributes:
        factor: What the input is multiplied by.
        shift: What is added.
        behind_shift: The size of the terms that the shift was computed from, where these may cancel: batch norm has
            shift = bias − mean · factor, and a network may be run as (x − mean) · factor + bias.
        roundings: How many roundings the constants saw if they were computed from others, relative to ``factor`` and
            ``behind_shift``. A network may compute them on its own, and round as often.
    """

    factor: Tensor
    shift: Tensor
    behind_shift: Tensor | None = None
    roundings: int = 0

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0] * self.factor + self.shift

    def linear(self, *inputs: Tensor) -> Tensor:
        return inputs[0] * self.factor

    def spread(self, half_width: Tensor) -> Tensor:
        return half_width * self.factor.abs()

    def rounding(self, *largest: Tensor) -> Rounding:
        shift = self.shift.abs() if self.behind_shift is None else self.behind_shift
        # a product and a sum; and a network that computes the constants on its own may round them as often
        return Rounding(self.spread(largest[0]) + shift, 2 + self.roundings, 1, self.roundings)

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        return [rows * self.factor]

    def constant(self, rows: Tensor, dtype: torch.dtype) -> Tensor | float:
        return (rows * self.shift).flatten(1).sum(1, dtype=dtype)


@dataclass(frozen=True)
class ReLU(Monotone):
    """ReLU, or leaky ReLU with a slope between 0 and 1. It is what a verifier splits."""

    slope: float = 0.0

    def apply(self, *inputs: Tensor) -> Tensor:
        return F.relu(inputs[0]) if self.slope == 0 else F.leaky_relu(inputs[0], self.slope)

    def rounding(self, *largest: Tensor) -> Rounding | None:
        return Rounding(self.slope * largest[0], 2, 1, constants=1) if self.slope else None  # the slope is rounded


@dataclass(frozen=True)
class Sum(Monotone):
    """The sum of two tensors, as in a residual connection.

    ``terms`` is larger than 1 in a chain that stands for one sum of several tensors, which may be run in any order.
    """

    terms: int = 1

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0] + inputs[1]

    def rounding(self, *largest: Tensor) -> Rounding:
        return Rounding(largest[0] + largest[1], self.terms, 1)

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        return [rows, rows]
