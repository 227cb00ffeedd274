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

from steadynet.bounds.window_transposes import is_fast_with_channels_last, transposed_with_channels_last
from steadynet.graph.operations import Convolution, Shape

_LARGEST_MATRIX = 1 << 21  # entries of a window's convolution matrix, past which a convolution is cheaper
_LARGEST_WITHOUT_STRIDE = 1 << 17  # the same with stride 1, where convolutions are twice as fast
_LARGEST_KEPT, _MOST_KEPT = 1 << 18, 16  # entries of a matrix that is kept for other properties, and how many are
_MOST_WINDOWS = 1 << 23  # numbers in all windows of a layer that are kept for the next functions
LEAST_OF_A_RUN = 1 << 12  # coefficients of functions of one cell, on average, from which each run goes by itself
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

    def cut(self, layer: Tensor, channels_last: bool = False) -> Tensor:
        """Every window of a layer (batch, channels, *map), zero outside.

        Returns:
            (batch, positions, channels · size), or (batch, positions, size · channels).
        """
        ends = [(self.grid[axis] - 1) * self.stride[axis] + self.size[axis] for axis in (0, 1)]
        padding: list[int] = []
        for axis in (1, 0):
            padding += [self.offset[axis], max(0, ends[axis] - self.offset[axis] - layer.shape[2 + axis])]
        if channels_last:
            layer = layer.contiguous(memory_format=torch.channels_last)
        layer = F.pad(layer, padding)[:, :, : ends[0], : ends[1]]
        windows = layer.unfold(2, self.size[0], self.stride[0]).unfold(3, self.size[1], self.stride[1])
        windows = windows.permute((0, 2, 3, 4, 5, 1) if channels_last else (0, 2, 3, 1, 4, 5))
        return windows.flatten(3).flatten(1, 2).contiguous()

    def inside(self, shape: Shape, like: Tensor) -> Tensor:
        """1 where a window lies in the layer, 0 in its padding: (positions, 1, *size)."""
        return _inside(self, tuple(shape[1:]), like.dtype, like.device)

    def clear_outside(self, shape: Shape, coefficients: Tensor, cells: Tensor) -> None:
        """Set coefficients (n, channels, \\*size) of cells (n,) to zero, in place, where they lie in the padding."""
        above_below, left_right = (self._overhangs(axis, shape[1 + axis]) for axis in (0, 1))
        if not any(map(any, [*above_below, *left_right])):
            return
        runs = runs_of(cells)
        if len(runs) * LEAST_OF_A_RUN >= coefficients.numel():
            coefficients *= self.inside(shape, coefficients).index_select(0, cells)
            return
        for mine, (_, cell) in zip(coefficients.split([count for count, _ in runs]), runs, strict=True):
            (top, bottom), (left, right) = above_below[cell // self.grid[1]], left_right[cell % self.grid[1]]
            for axis, (before, behind) in ((2, (top, bottom)), (3, (left, right))):
                if before:
                    mine.narrow(axis, 0, before).zero_()
                if behind:
                    mine.narrow(axis, mine.shape[axis] - behind, behind).zero_()

    def _overhangs(self, axis: int, length: int) -> list[tuple[int, int]]:
        """How far the window of each place along an axis of the grid hangs over the two ends of a layer."""
        size, starts = self.size[axis], [n * self.stride[axis] - self.offset[axis] for n in range(self.grid[axis])]
        return [(min(max(-start, 0), size), min(max(start + size - length, 0), size)) for start in starts]


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
        self._kept: tuple[tuple[Patch, int, int, bool, list[int]], Tensor] | None = None

    def seen(self, patch: Patch, cells: Tensor, owner: Tensor | None, channels_last: bool = False) -> Tensor:
        """What each function sees, (n, tensors, channels, \\*size of the patch).

        Args:
            patch: how the windows lie in the layer.
            cells: (n,), the cell of the patch grid that each function belongs to.
            owner: (n,), the property of each function; None if function i belongs to property i.
            channels_last: whether the channels shall come last in memory, as those of the coefficients do.
        """
        cut, rows = self._windows(patch, cells, owner, channels_last)
        tensors, channels, seen = len(self.layers), self.layers[0].shape[1], cut.index_select(0, rows)
        if channels_last:
            return seen.unflatten(1, (tensors, *patch.size, channels)).movedim(-1, -3)
        return seen.unflatten(1, (tensors, channels, *patch.size))

    def seen_by_runs(
        self, patch: Patch, cells: Tensor, owner: Tensor | None, channels_last: bool = False
    ) -> list[tuple[int, Tensor]] | None:
        """What each run of functions that see the same window sees, without copies; None if runs are short.

        Args:
            patch: as in :meth:`seen`.
            cells: as in :meth:`seen`.
            owner: as in :meth:`seen`.
            channels_last: as in :meth:`seen`.

        Returns:
            Per run, how many functions it has, and (tensors, numbers), in the order of memory.
        """
        cut, rows = self._windows(patch, cells, owner, channels_last)
        runs, cut = runs_of(rows), cut.unflatten(1, (len(self.layers), -1))
        if len(rows) * cut.shape[2] <= LEAST_OF_A_RUN * len(runs):
            return None
        return [(count, cut[row]) for count, row in runs]

    def _windows(self, patch: Patch, cells: Tensor, owner: Tensor | None, channels_last: bool) -> tuple[Tensor, Tensor]:
        """The windows of some properties (properties · cells, numbers), and the row of each function there."""
        properties = len(self.layers[0])
        if owner is None:
            first, last, rows = 0, properties - 1, torch.arange(properties, device=cells.device)
        elif properties == 1:
            first, last, rows = 0, 0, None  # one property serves every function
        else:
            first, last = int(owner.min()), int(owner.max())
            rows = owner - first
        cut = self._cut(patch, first, last, channels_last)
        return cut.flatten(0, 1), cells if rows is None else rows * cut.shape[1] + cells

    def _cut(self, patch: Patch, first: int, last: int, channels_last: bool) -> Tensor:
        """(properties, cells, tensors · channels · size), or (properties, cells, tensors · size · channels)."""
        may_keep = not any(layer.requires_grad or layer.is_inference() for layer in self.layers)
        key = patch, first, last, channels_last, [layer._version for layer in self.layers] if may_keep else []
        if self._kept is not None and self._kept[0] == key:
            return self._kept[1]
        if channels_last:
            cut = torch.cat([patch.cut(layer[first : last + 1], channels_last=True) for layer in self.layers], 2)
        else:
            cut = patch.cut(torch.cat([layer[first : last + 1] for layer in self.layers], 1))
        if may_keep and cut.numel() <= _MOST_WINDOWS:
            self._kept = key, cut
        return cut


def runs_of(rows: Tensor) -> list[tuple[int, int]]:
    """Runs of equal numbers, (n,): how long each run is, and its number.

    >>> runs_of(torch.tensor([4, 4, 2]))
    [(2, 4), (1, 2)]
    """
    numbers, counts = rows.unique_consecutive(return_counts=True)
    return list(zip(counts.tolist(), numbers.tolist(), strict=True))


def transposed_on_patches(convolution: Convolution, rows: Tensor, matrices: Matrices) -> Tensor:
    """Rows (n, channels, *size) one convolution back: (n, channels before, *larger size), nothing cut at the edge.

    Small windows go through a matrix, kept in ``matrices``: on a CPU that is faster than a convolution of tiny images.
    """
    whole = Convolution(convolution.weight, None, convolution.stride, (0, 0), convolution.dilation, convolution.groups)
    size = Patch((1, 1), (1, 1), (0, 0), (rows.shape[2], rows.shape[3])).behind(whole).size
    shape = (convolution.weight.shape[1] * convolution.groups, *size)
    outputs, inputs = rows.shape[1:].numel(), shape[0] * size[0] * size[1]
    if is_fast_with_channels_last(whole, rows, outputs * inputs):
        return transposed_with_channels_last(convolution, rows, matrices)
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
