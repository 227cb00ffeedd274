"""Transposed convolutions of many small windows at once, with the channels last in memory.

oneDNN convolves small images with channels last several times as fast as others, and a matrix product on a CPU may take
twice as long as its convolutions of single pixels. So windows that are wide enough go one of two ways back through a
convolution. Both compute the same sums as PyTorch's transposed convolution, in another order, plus products with zeros.
So at most as many terms are rounded, and what is counted for a transposed convolution holds.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.graph.operations import FEW_CHANNELS, Convolution

CHANNELS_LAST_WINDOWS = True  # whether windows go back through convolutions with channels last, where that is fast
LEAST_PRODUCTS = 1 << 17  # entries of a window's convolution matrix, up to which a product with it is as fast
_WIDEST_BLOCK = 4  # pixels of a row whose columns are computed together
Kept = dict[tuple[int, int, int], Tensor]  # by the convolution, and what no size of a window is
_LAST = torch.channels_last


def has_channels_last(rows: Tensor) -> bool:
    """Whether windows (n, channels, \\*size) lie in memory with their channels last, and not first."""
    return rows.dim() == 4 and not rows.is_contiguous() and rows.is_contiguous(memory_format=_LAST)


def is_fast_with_channels_last(convolution: Convolution, rows: Tensor, entries: int) -> bool:
    """Whether windows go back through a convolution faster by :func:`transposed_with_channels_last`.

    Args:
        convolution: what to go back through.
        rows: the coefficients of functions of its output, (n, channels, \\*size).
        entries: how many entries the matrix of one window's convolution has.
    """
    plain = convolution.groups == 1 and convolution.dilation == (1, 1)
    pays = convolution.weight.shape[1] <= FEW_CHANNELS or convolution.stride != (1, 1)
    fits = rows.device.type == "cpu" and rows.dtype == torch.float32 and torch.backends.mkldnn.is_available()
    no_gradients = not torch.is_grad_enabled()  # the results are written in place
    return CHANNELS_LAST_WINDOWS and plain and pays and fits and no_gradients and entries > LEAST_PRODUCTS


def transposed_with_channels_last(convolution: Convolution, rows: Tensor, kept: Kept) -> Tensor:
    """Windows (n, channels, \\*size) one convolution back, nothing cut at the edge, with channels last in memory.

    Args:
        convolution: what to go back through, without groups and dilation. Its padding does not count.
        rows: the coefficients of functions of its output.
        kept: a cache of weights in the form that is needed here.
    """
    rows = rows.contiguous(memory_format=_LAST)
    if convolution.weight.shape[1] <= FEW_CHANNELS:
        return _as_sums_of_columns(convolution, rows, kept)
    return _as_sub_pixels(convolution, rows, kept)


def _as_sub_pixels(convolution: Convolution, rows: Tensor, kept: Kept) -> Tensor:
    """Pixel stride·a + r of the result only sees the taps r, r + stride, … of the kernel: one convolution for each r.

    Those of one row are computed together, as neighbours in memory. So only rows are interleaved.
    """
    weight, (down, right) = convolution.weight, convolution.stride
    outputs, channels, *kernel = weight.shape
    taps = -(-kernel[0] // down), -(-kernel[1] // right)
    key = (id(convolution), -1, -1)
    if key not in kept:
        padded = F.pad(weight.detach(), (0, taps[1] * right - kernel[1], 0, taps[0] * down - kernel[0]))
        by_residue = padded.reshape(outputs, channels, taps[0], down, taps[1], right).permute(3, 5, 1, 2, 4, 0)
        kept[key] = by_residue.flip(3, 4).reshape(down, right * channels, *taps, outputs).permute(0, 1, 4, 2, 3)
    count, height, width = len(rows), (rows.shape[2] - 1) * down + kernel[0], (rows.shape[3] - 1) * right + kernel[1]
    result = rows.new_empty(count, height, width, channels)
    for residue, kernels in enumerate(kept[key]):
        part = F.conv2d(rows, kernels, padding=(taps[0] - 1, taps[1] - 1))
        part = part.permute(0, 2, 3, 1).unflatten(3, (right, channels)).flatten(2, 3)
        place = result[:, residue::down]
        place.copy_(part[:, : place.shape[1], :width])
    return result.permute(0, 3, 1, 2)


def _as_sums_of_columns(convolution: Convolution, rows: Tensor, kept: Kept) -> Tensor:
    """Every block of pixels in a row by itself, and then the sums of what overlaps: first of rows, then of columns."""
    weight, (down, right) = convolution.weight, convolution.stride
    (outputs, channels, *kernel), (count, _, height, width) = weight.shape, rows.shape
    block = max(size for size in range(1, _WIDEST_BLOCK + 1) if width % size == 0)
    blocks, span = width // block, ((block - 1) * right + kernel[1]) * channels
    key = (id(convolution), -2, block)
    if key not in kept:
        columns = weight.new_zeros(kernel[0], span // channels, channels, block, outputs)
        for pixel in range(block):
            columns[:, pixel * right : pixel * right + kernel[1], :, pixel] = weight.detach().permute(2, 3, 1, 0)
        kept[key] = columns.reshape(kernel[0] * span, block * outputs, 1, 1)
    pixels = rows.permute(0, 2, 3, 1).reshape(count, height, blocks, block * outputs).permute(0, 3, 1, 2)
    parts = F.conv2d(pixels, kept[key]).permute(0, 2, 3, 1).unflatten(3, (kernel[0], span))
    by_row = rows.new_zeros(count, (height - 1) * down + kernel[0], blocks, span)
    for place in range(kernel[0]):
        by_row[:, place : place + (height - 1) * down + 1 : down] += parts[:, :, :, place]
    result = rows.new_zeros(count, by_row.shape[1], ((width - 1) * right + kernel[1]) * channels)
    for number in range(blocks):
        left = number * block * right * channels
        result[:, :, left : left + span] += by_row[:, :, number]
    return result.unflatten(2, (-1, channels)).permute(0, 3, 1, 2)
