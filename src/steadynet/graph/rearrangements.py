"""Operations that only move numbers: no axis that they name is the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.graph.operations import Monotone, Shape
from steadynet.graph.rounding import Rounding


@dataclass(frozen=True)
class Concat(Monotone):
    """Tensors side by side along an axis other than the batch."""

    axis: int

    def apply(self, *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, self.axis)

    def rounding(self, *largest: Tensor) -> None:
        return None

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        axis = self.axis % rows.dim()
        return list(rows.split([shape[axis - 1] for shape in shapes], axis))


@dataclass(frozen=True)
class Reshape(Monotone):
    """A tensor in another shape; ``shape`` does not count the batch."""

    shape: tuple[int, ...]

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].reshape(inputs[0].shape[0], *self.shape)

    def rounding(self, *largest: Tensor) -> None:
        return None

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        return [rows.reshape(len(rows), *shapes[0])]


@dataclass(frozen=True)
class Permute(Monotone):
    """The axes in another order: output axis i is input axis ``order[i]``. The batch stays first and is not counted."""

    order: tuple[int, ...]

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].permute(0, *(axis + 1 for axis in self.order)).contiguous()

    def rounding(self, *largest: Tensor) -> None:
        return None

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return [Permute(tuple(back)).apply(rows)]


@dataclass(frozen=True)
class Take(Monotone):
    """The elements at ``positions`` along an axis other than the batch, as slices and gathers take them."""

    axis: int
    positions: tuple[int, ...]

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].index_select(self.axis, self._index(inputs[0]))

    def rounding(self, *largest: Tensor) -> Rounding | None:
        repeated = max(Counter(self.positions).values())  # transposed, these are added up
        return Rounding(self.apply(largest[0]), 0, repeated) if repeated > 1 else None

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        whole = torch.zeros(len(rows), *shapes[0], dtype=rows.dtype, device=rows.device)
        return [whole.index_add(self.axis, self._index(rows), rows)]

    def _index(self, like: Tensor) -> Tensor:
        return torch.tensor(self.positions, device=like.device)


@dataclass(frozen=True)
class Pad(Monotone):
    """Zeros around a tensor: how many before and after along each axis, without the batch."""

    widths: tuple[tuple[int, int], ...]

    def apply(self, *inputs: Tensor) -> Tensor:
        return F.pad(inputs[0], [width for widths in reversed(self.widths) for width in widths])

    def rounding(self, *largest: Tensor) -> None:
        return None

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        for axis, ((before, _), length) in enumerate(zip(self.widths, shapes[0], strict=True), 1):
            rows = rows.narrow(axis, before, length)
        return [rows]
