"""Which operation each PyTorch module and function becomes. To support another module, add a row to a table here."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet.graph.batch_norm import batch_norm_scale
from steadynet.graph.operations import Convolution, Dense, Operation, Pair, ReLU, Scale
from steadynet.graph.pooling import AveragePool, MaxPool
from steadynet.graph.rearrangements import Pad
from steadynet.graph.s_shaped import SShaped

Shape = tuple[int, ...]
Range = tuple[float | None, float | None]


class NoBoundsError(Exception):
    """The network uses something for which no bounds are known. The translation adds the name of the layer."""


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def _convolution(module: nn.Conv2d, shape: Shape) -> Operation:
    if module.padding_mode != "zeros":
        raise NoBoundsError(f"Conv2d with padding_mode='{module.padding_mode}'")
    stride, dilation = _pair(module.stride), _pair(module.dilation)
    return Convolution(module.weight, module.bias, stride, _padding(module), dilation, module.groups)


def _padding(module: nn.Conv2d) -> Pair:
    """Return the padding in pixels; "same" is supported where it pads both sides alike."""
    if module.padding == "valid":
        return (0, 0)
    if module.padding != "same":
        return _pair(module.padding)
    whole = [step * (length - 1) for step, length in zip(_pair(module.dilation), module.kernel_size, strict=True)]
    if any(pixels % 2 for pixels in whole):
        raise NoBoundsError("Conv2d with padding='same' and an even kernel")
    return (whole[0] // 2, whole[1] // 2)


def _batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, shape: Shape) -> Operation:
    if module.running_mean is None or module.running_var is None:
        raise NoBoundsError("batch norm without running statistics")
    mean, variance = module.running_mean, module.running_var
    return batch_norm_scale(mean, variance, module.eps, module.weight, module.bias, axes=len(shape) - 2)


def leaky_relu(slope: float) -> Operation:
    """Build a leaky ReLU; its slope must keep it monotone and convex."""
    if not 0 <= slope <= 1:
        raise NoBoundsError(f"leaky ReLU with slope {slope}, which is not between 0 and 1")
    return ReLU(slope)


def max_pool(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Operation:
    """Return the operation of ``F.max_pool2d`` with these arguments."""
    if return_indices:
        raise NoBoundsError("max pooling that returns indices")
    return MaxPool(_pair(kernel_size), _pair(stride or kernel_size), _pair(padding), _pair(dilation), ceil_mode)


def average_pool(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Operation:
    """Return the operation of ``F.avg_pool2d`` with these arguments."""
    if (divisor_override or 1) < 0:
        raise NoBoundsError("average pooling with a negative divisor")
    kernel, stride = _pair(kernel_size), _pair(stride or kernel_size)
    return AveragePool(kernel, stride, _pair(padding), ceil_mode, count_include_pad, divisor_override)


def _adaptive_average_pool(module: nn.AdaptiveAvgPool2d, shape: Shape) -> Operation:
    if module.output_size not in (1, (1, 1)) or len(shape) != 4:
        raise NoBoundsError(f"AdaptiveAvgPool2d of {shape[1:]} to {module.output_size}, only to (1, 1)")
    return average_pool(shape[2:])


def limits(least: Any, most: Any) -> tuple[float, float]:
    """Return the range of a clipping as numbers, infinite where it has no end."""
    if not all(bound is None or isinstance(bound, (int, float)) for bound in (least, most)):
        raise NoBoundsError("clipping to something that is not a number")
    return (-math.inf if least is None else float(least), math.inf if most is None else float(most))


def axis_order(target: Any, args: Any, kwargs: Any, axes: int) -> tuple[int, ...]:
    """Return the order of the axes after ``permute`` or ``transpose`` with these arguments, without the batch."""
    given = [
        axis for value in (*args, *kwargs.values()) for axis in (value if isinstance(value, tuple | list) else [value])
    ]
    given = [axis % axes for axis in given]
    order = list(range(axes)) if target in TRANSPOSITIONS else given
    if target in TRANSPOSITIONS:
        one, other = given
        order[one], order[other] = order[other], order[one]
    if order[0] != 0:
        raise NoBoundsError("a transposition that moves the batch axis")
    return tuple(axis - 1 for axis in order[1:])


def _zero_pad(module: nn.ZeroPad2d, shape: Shape) -> Operation:
    left, right, top, bottom = module.padding
    if min(module.padding) < 0 or len(shape) != 4:
        raise NoBoundsError(f"ZeroPad2d by {module.padding} of {shape[1:]}")
    return Pad(((0, 0), (top, bottom), (left, right)))


# module type -> a function (module, input shape with the batch) -> operation; None: it does nothing in evaluation
MODULES: dict[type[nn.Module], Callable[[Any, Shape], Operation] | None] = {
    nn.Linear: lambda module, shape: Dense(module.weight, module.bias),
    nn.Conv2d: _convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.ReLU: lambda module, shape: ReLU(),
    nn.LeakyReLU: lambda module, shape: leaky_relu(module.negative_slope),
    nn.Sigmoid: lambda module, shape: SShaped("sigmoid"),
    nn.Tanh: lambda module, shape: SShaped("tanh"),
    nn.AvgPool2d: lambda module, shape: average_pool(
        module.kernel_size,
        module.stride,
        module.padding,
        module.ceil_mode,
        module.count_include_pad,
        module.divisor_override,
    ),
    nn.MaxPool2d: lambda module, shape: max_pool(
        module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode, module.return_indices
    ),
    nn.AdaptiveAvgPool2d: _adaptive_average_pool,
    nn.ZeroPad2d: _zero_pad,
    nn.Identity: None,
    nn.Dropout: None,
    nn.Dropout2d: None,
}
RESHAPING_MODULES = (nn.Flatten, nn.Unflatten)
# module type -> a function module -> the range it clips to
CLIPPING_MODULES: dict[type[nn.Module], Callable[[Any], Range]] = {
    nn.ReLU6: lambda module: (0.0, 6.0),
    nn.Hardtanh: lambda module: (module.min_val, module.max_val),
}
# function -> a function (arguments after the data) -> the range it clips to
CLIPS: dict[Any, Callable[..., Range]] = {
    F.relu6: lambda inplace=False: (0.0, 6.0),
    F.hardtanh: lambda min_val=-1.0, max_val=1.0, inplace=False: (min_val, max_val),
    **dict.fromkeys(
        (torch.clamp, torch.clip, "clamp", "clip", "clamp_", "clip_"), lambda min=None, max=None: (min, max)
    ),
    **dict.fromkeys((torch.clamp_min, "clamp_min", "clamp_min_"), lambda min: (min, None)),
    **dict.fromkeys((torch.clamp_max, "clamp_max", "clamp_max_"), lambda max: (None, max)),
}
ACTIVATIONS: dict[Any, Operation] = {
    **dict.fromkeys((F.relu, torch.relu, F.relu_, torch.relu_, "relu", "relu_"), ReLU()),
    **dict.fromkeys(
        (torch.sigmoid, torch.sigmoid_, torch.special.expit, F.sigmoid, "sigmoid", "sigmoid_"), SShaped("sigmoid")
    ),
    **dict.fromkeys((torch.tanh, torch.tanh_, F.tanh, "tanh", "tanh_"), SShaped("tanh")),
}
IDENTITIES = {"contiguous", "clone"}
DROPOUTS = {F.dropout, F.dropout2d}
RESHAPES = {torch.flatten, torch.reshape, "flatten", "view", "reshape", torch.squeeze, "squeeze", "unsqueeze"}
ADDITIONS = {operator.add, torch.add, "add", operator.iadd, "add_"}
SUBTRACTIONS = {operator.sub, torch.sub, "sub", operator.isub}
PRODUCTS = {operator.mul, torch.mul, "mul", operator.imul}
QUOTIENTS = {operator.truediv, torch.div, "div", operator.itruediv}
PERMUTATIONS = {torch.permute, "permute"}
TRANSPOSITIONS = {torch.transpose, "transpose", torch.swapaxes, "swapaxes"}
CONCATENATIONS = {torch.cat, torch.concat}


def with_constant(target: Any, constant: Tensor, *, data_first: bool) -> Scale:
    """Return arithmetic of data with a constant as a scale.

    Args:
        target: The function, one of the four sets above.
        constant: The constant.
        data_first: Whether it is data − constant, not constant − data.
    """
    if target in ADDITIONS:
        return Scale(torch.ones_like(constant), constant)
    if target in SUBTRACTIONS:
        sign = 1 if data_first else -1
        return Scale(sign * torch.ones_like(constant), -sign * constant)
    if target in PRODUCTS:
        return Scale(constant, torch.zeros_like(constant))
    return Scale(1 / constant, torch.zeros_like(constant), roundings=1)
