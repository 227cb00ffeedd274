"""A faster gradient with respect to the input alone, on CPUs.

An attack only needs ∂objective/∂x. On a CPU two things make it slow. The data gradient of oneDNN for a strided
convolution with few channels takes several times as long as the forward pass. And where memory layouts mix (channels
first in one tensor, channels last in the next), element-wise operations become ten times slower.

While :func:`fast_input_gradient` is active, convolutions use the channels-last layout and a sub-pixel data gradient,
and ReLUs keep the layout. The values are the same up to rounding. Parameters get no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from steadynet.networks.intercept_relu import InterceptReLU

CHANNELS_LAST = torch.channels_last
MOST_SUB_PIXEL_CHANNELS = 8  # with more channels, the data gradient of oneDNN is faster


def fast_input_gradient(
    device: torch.device, relu: Callable[[Tensor], Tensor] | None = None
) -> AbstractContextManager[Any]:
    """Return a context in which the gradient with respect to the input is fast.

    On a GPU, PyTorch's own kernels are fast already and stay as they are.

    Args:
        device: Where the network is.
        relu: What replaces every ReLU; its gradient must keep the memory layout.

    >>> layer, images = nn.Conv2d(1, 2, 4, stride=2), torch.zeros(1, 1, 8, 8, requires_grad=True)
    >>> with fast_input_gradient(images.device):
    ...     torch.autograd.grad(layer(images).sum(), images)[0].shape
    torch.Size([1, 1, 8, 8])
    """
    if device.type == "cpu":
        return _FastInputGradient(relu or relu_keeping_layout)
    return InterceptReLU(relu) if relu else nullcontext()


def like_layout(tensor: Tensor, reference: Tensor) -> Tensor:
    """Return the tensor in the memory layout of the reference, because mixed layouts are slow on a CPU."""
    if reference.dim() == 4 and reference.is_contiguous(memory_format=CHANNELS_LAST):
        return tensor.contiguous(memory_format=CHANNELS_LAST)
    return tensor.contiguous()


class _FastInputGradient(InterceptReLU):
    def __init__(self, relu: Callable[[Tensor], Tensor]) -> None:
        super().__init__(relu)
        self._weights: dict[int, Tensor] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.conv2d and not kwargs and _plain_convolution(*args):
            images, weight, bias, stride, padding = args[:5]
            bias = bias.detach() if bias is not None else None
            weight = self._channels_last(weight)
            return _Convolution.apply(images, weight, bias, stride[0], padding)  # type: ignore[no-untyped-call]
        return super().__torch_function__(func, types, args, kwargs)

    def _channels_last(self, weight: Tensor) -> Tensor:
        if not isinstance(weight, nn.Parameter):  # it may be computed anew in each forward, so no copy is kept
            return weight.contiguous(memory_format=CHANNELS_LAST)
        if id(weight) not in self._weights:
            self._weights[id(weight)] = weight.detach().contiguous(memory_format=CHANNELS_LAST)
        return self._weights[id(weight)]


def _plain_convolution(
    images: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> bool:
    """Whether this is a call of ``nn.Conv2d`` without dilation and groups, and with one stride for both axes.

    Weights that are neither parameters nor constants are left to PyTorch: they may depend on the input.
    """
    return (
        images.dim() == 4
        and _is_constant(weight)
        and (bias is None or _is_constant(bias))
        and isinstance(stride, tuple)
        and isinstance(padding, tuple)
        and len(stride) == len(padding) == 2
        and stride[0] == stride[1]
        and dilation == (1, 1)
        and groups == 1
        and images.requires_grad
    )


def _is_constant(weight: Tensor) -> bool:
    """Whether no gradient of the input goes through this weight: a parameter, or a buffer such as an ONNX weight."""
    return isinstance(weight, nn.Parameter) or not weight.requires_grad


def relu_keeping_layout(preactivation: Tensor) -> Tensor:
    """Compute a ReLU whose gradient has the layout of its output, even behind a layer that changes it (Flatten)."""
    return _ReLU.apply(preactivation)  # type: ignore[no-untyped-call]


class _ReLU(torch.autograd.Function):
    """See :func:`relu_keeping_layout`."""

    @staticmethod
    def forward(ctx: Any, preactivation: Tensor) -> Tensor:
        output = torch.relu(preactivation)
        ctx.save_for_backward(output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        return relu_backward(gradient, output)


def relu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    """Compute the gradient of a ReLU's input from that of its output, in the layout of the output."""
    # one pass over memory; gradient * (output > 0) takes several times as long
    return torch.ops.aten.threshold_backward(like_layout(gradient, output), output, 0)


class _Convolution(torch.autograd.Function):
    """A convolution that has a gradient with respect to the images only."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: tuple[int, int]
    ) -> Tensor:
        ctx.save_for_backward(images, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(images, weight, bias, stride, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        images, weight = ctx.saved_tensors
        return convolution_data_gradient(gradient, images, weight, ctx.stride, ctx.padding), None, None, None, None


def convolution_data_gradient(
    gradient: Tensor, images: Tensor, weight: Tensor, stride: int, padding: tuple[int, int]
) -> Tensor:
    """Compute ∂/∂images of a convolution, in the way that is fast for its shape."""
    size, channels = images.shape[2:], images.shape[1]
    if channels == 1:
        columns = weight.flatten(1).t() @ gradient.flatten(2)
        return F.fold(columns, (size[0], size[1]), weight.shape[2:], stride=stride, padding=padding)
    if stride > 1 and channels <= MOST_SUB_PIXEL_CHANNELS:
        return sub_pixel_transpose(gradient, weight, stride, padding, size)
    # as torch.nn.grad.conv2d_input does, but without a copy of the images
    return torch.ops.aten.convolution_backward(
        gradient, images, weight, None, [stride, stride], padding, [1, 1], False, [0, 0], 1, [True, False, False]
    )[0]


def sub_pixel_transpose(
    gradient: Tensor, weight: Tensor, stride: int, padding: tuple[int, int], size: Sequence[int]
) -> Tensor:
    """Compute a transposed convolution of stride s as a plain convolution with s² times as many channels.

    Pixel s·a + r of the padded image only sees the kernel taps r, r + s, r + 2s, …. So there is one small kernel per
    residue r; the results for all residues are then interleaved to one image.

    Args:
        gradient: What to transpose, (batch, outputs, height, width).
        weight: The weight of the convolution, (outputs, channels, kernel height, kernel width).
        stride: The stride of the convolution.
        padding: The padding of the convolution.
        size: The height and width of the result.

    Returns:
        A tensor (batch, channels, *size).
    """
    outputs, channels, *kernel = weight.shape
    taps = [-(-length // stride) for length in kernel]
    padded = F.pad(weight, (0, taps[1] * stride - kernel[1], 0, taps[0] * stride - kernel[0]))
    by_residue = padded.reshape(outputs, channels, taps[0], stride, taps[1], stride).permute(3, 5, 1, 0, 2, 4)
    kernels = by_residue.flip(4, 5).reshape(stride**2 * channels, outputs, *taps)
    planes = F.conv2d(gradient, like_layout(kernels, gradient), padding=(taps[0] - 1, taps[1] - 1))
    image = _interleaved(planes, stride, channels)
    missing = [max(size[axis] + padding[axis] - image.shape[2 + axis], 0) for axis in (0, 1)]
    if any(missing):
        image = F.pad(image, (0, missing[1], 0, missing[0]))
    return image[:, :, padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]]


def _interleaved(planes: Tensor, stride: int, channels: int) -> Tensor:
    """Interleave planes (batch, residue y · residue x · channels, height, width) to one image, in their layout."""
    batch, _, height, width = planes.shape
    if planes.is_contiguous(memory_format=CHANNELS_LAST):
        cells = planes.permute(0, 2, 3, 1).reshape(batch, height, width, stride, stride, channels)
        image = cells.permute(0, 1, 3, 2, 4, 5).reshape(batch, height * stride, width * stride, channels)
        return image.permute(0, 3, 1, 2)
    cells = planes.reshape(batch, stride, stride, channels, height, width).permute(0, 3, 4, 1, 5, 2)
    return cells.reshape(batch, channels, height * stride, width * stride)
