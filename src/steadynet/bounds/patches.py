"""A convolution's neuron sees a patch of the layers before it: linear functions as windows instead of whole maps.

The rows of one layer sit on its grid of positions. Behind a convolution of stride s and padding p, position g of the
grid sees the window that starts at g·stride − offset, with stride and offset the products and sums of the layers
between. A window may hang over the edge, into the padding: its coefficients are zero there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.graph.operations import Convolution, Shape

_LARGEST_MATRIX = 1 << 21  # entries of a window's convolution matrix, past which a convolution is cheaper
_LARGEST_WITHOUT_STRIDE = 1 << 17  # the same with stride 1, where convolutions are twice as fast
_LARGEST_KEPT, _MOST_KEPT = 1 << 18, 16  # entries of a matrix that is kept for other properties, and how many are
_MOST_WINDOWS = 1 << 23  # numbers in all windows of a layer that are kept for the next functions
_KEPT_MATRICES: dict[Hashable, Tensor] = {}
Matrices = dict[tuple[int, int, int], Tensor]


@dataclass(frozen=True)
class Patch:
    """Where the windows of a grid of positions lie in a layer: all have one size."""

    grid: tuple[int, int]
    stride: tuple[int, int]
    offset: tuple[int, int]
    size: tuple[int, int]

    @classmethod
    def single(cls, height: int, width: int) -> Patch:
        """Each position sees itself."""
        return cls((height, width), (1, 1), (0, 0), (1, 1))

    def behind(self, convolution: Convolution) -> Patch:
        """The same rows, seen one convolution further back."""
        kernel, dilation = convolution.weight.shape[2:], convolution.dilation
        stride, padding = convolution.stride, convolution.padding
        axes = (0, 1)
        return Patch(
            self.grid,
            tuple(self.stride[axis] * stride[axis] for axis in axes),  # type: ignore[arg-type]
            tuple(self.offset[axis] * stride[axis] + padding[axis] for axis in axes),  # type: ignore[arg-type]
            tuple(  # type: ignore[arg-type]
                (self.size[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1 for axis in axes
            ),
        )

    def covers(self, shape: Shape) -> bool:
        """Whether a window is no smaller than the layer: then it saves nothing."""
        return self.size[0] * self.size[1] >= shape[1] * shape[2]

    def cut(self, layer: Tensor) -> Tensor:
        """Every window of a layer (batch, channels, *map): (batch, positions, channels · size), zero outside."""
        padding: list[int] = []
        for axis in (1, 0):
            end = (self.grid[axis] - 1) * self.stride[axis] + self.size[axis] - self.offset[axis]
            padding += [self.offset[axis], end - layer.shape[2 + axis]]
        return F.unfold(F.pad(layer, padding), self.size, stride=self.stride).transpose(1, 2).contiguous()

    def inside(self, shape: Shape, like: Tensor) -> Tensor:
        """1 where a window lies in the layer, 0 in its padding: (positions, 1, *size)."""
        return _inside(self, tuple(shape[1:]), like.dtype, like.device)


@lru_cache(maxsize=32)
def _inside(patch: Patch, size: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    ones = torch.ones(1, 1, *size, dtype=dtype, device=device)
    return patch.cut(ones)[0].view(-1, 1, *patch.size)


class WindowedLayers:
    """Several tensors of one layer, (properties, channels, \\*map) each, whose windows are cut together.

    The windows that were cut last are kept: functions come in many batches, and mostly ask for those of the same
    property again. They are not kept if they are too many, or if gradients go through them. They are cut anew if a
    tensor was changed in place since then.
    """

    def __init__(self, layers: Sequence[Tensor]) -> None:
        self.layers = tuple(layers)
        self._kept: tuple[tuple[Patch, int, int, list[int]], Tensor] | None = None

    def seen(self, patch: Patch, cells: Tensor, owner: Tensor | None) -> Tensor:
        """What each function sees, (n, tensors, channels, \\*size of the patch).

        Args:
            patch: how the windows lie in the layer.
            cells: (n,), the cell of the patch grid that each function belongs to.
            owner: (n,), the property of each function; None if function i belongs to property i.
        """
        properties = len(self.layers[0])
        if owner is None:
            first, last, rows = 0, properties - 1, torch.arange(properties, device=cells.device)
        elif properties == 1:
            first, last, rows = 0, 0, None  # one property serves every function
        else:
            first, last = int(owner.min()), int(owner.max())
            rows = owner - first
        cut = self._cut(patch, first, last)  # (properties, cells, tensors · channels · size)
        seen = cut.flatten(0, 1).index_select(0, cells if rows is None else rows * cut.shape[1] + cells)
        return seen.view(len(cells), len(self.layers), self.layers[0].shape[1], *patch.size)

    def _cut(self, patch: Patch, first: int, last: int) -> Tensor:
        may_keep = not any(layer.requires_grad or layer.is_inference() for layer in self.layers)
        key = patch, first, last, [layer._version for layer in self.layers] if may_keep else []
        if self._kept is not None and self._kept[0] == key:
            return self._kept[1]
        cut = patch.cut(torch.cat([layer[first : last + 1] for layer in self.layers], 1))
        if may_keep and cut.numel() <= _MOST_WINDOWS:
            self._kept = key, cut
        return cut


def transposed_on_patches(convolution: Convolution, rows: Tensor, matrices: Matrices) -> Tensor:
    """Rows (n, channels, *size) one convolution back: (n, channels before, *larger size), nothing cut at the edge.

    Small windows go through a matrix, kept in ``matrices``: on a CPU that is faster than a convolution of tiny images.
    """
    whole = Convolution(convolution.weight, None, convolution.stride, (0, 0), convolution.dilation, convolution.groups)
    size = Patch((1, 1), (1, 1), (0, 0), (rows.shape[2], rows.shape[3])).behind(whole).size
    shape = (convolution.weight.shape[1] * convolution.groups, *size)
    outputs, inputs = rows[0].numel(), shape[0] * size[0] * size[1]
    if outputs * inputs > (_LARGEST_WITHOUT_STRIDE if convolution.stride == (1, 1) else _LARGEST_MATRIX):
        return whole.transposed(rows, shape)
    if rows.shape[2:] == (1, 1) and size == whole.weight.shape[2:] and whole.groups == 1:
        return (rows.flatten(1) @ whole.weight.flatten(1)).view(len(rows), *shape)  # one pixel sees the kernel itself
    key = (id(convolution), rows.shape[2], rows.shape[3])
    if key not in matrices:
        matrices[key] = _known_matrix(whole, tuple(rows.shape[1:]), shape)
    return (rows.reshape(len(rows), outputs) @ matrices[key]).view(len(rows), *shape)


def _known_matrix(convolution: Convolution, outputs: Shape, inputs: Shape) -> Tensor:
    """As :func:`_as_matrix`. Small matrices are kept for the next property, by the content of the weight."""
    weight = convolution.weight
    entries = torch.Size(outputs).numel() * torch.Size(inputs).numel()
    if (
        weight.requires_grad
        or weight.device.type != "cpu"
        or entries > _LARGEST_KEPT
        or torch.is_inference_mode_enabled()
    ):
        return _as_matrix(convolution, outputs, inputs)
    content = weight.detach().numpy().tobytes()
    key = content, weight.dtype, weight.shape, convolution.stride, convolution.dilation, outputs, inputs
    if key not in _KEPT_MATRICES:
        while len(_KEPT_MATRICES) >= _MOST_KEPT:
            del _KEPT_MATRICES[next(iter(_KEPT_MATRICES))]
        _KEPT_MATRICES[key] = _as_matrix(convolution, outputs, inputs)
    return _KEPT_MATRICES[key]


def _as_matrix(convolution: Convolution, outputs: Shape, inputs: Shape) -> Tensor:
    """The transpose of a convolution on one window as a matrix (outputs, inputs): its entries are the weights.

    The convolution of every unit input gives its columns, the transpose on every unit output its rows. The smaller side
    is computed.
    """
    weight, rows, columns = convolution.weight, torch.Size(outputs).numel(), torch.Size(inputs).numel()
    unit = torch.eye(min(rows, columns), dtype=weight.dtype, device=weight.device)
    if columns < rows:
        images = unit.view(columns, *inputs)
        return F.conv2d(images, weight, None, convolution.stride, 0, convolution.dilation).reshape(columns, rows).t()
    return convolution.transposed(unit.view(rows, *outputs), inputs).reshape(rows, columns)
