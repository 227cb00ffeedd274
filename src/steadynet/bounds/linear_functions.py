"""Linear functions of one layer's value, whole or restricted to the patch of the layer that they see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.patches import Patch, WindowedLayers
from steadynet.graph.operations import Shape


@dataclass(frozen=True)
class LinearFunctions:
    """A batch of n linear functions v ↦ Σ coefficients · v of a value v.

    Attributes:
        coefficients: (n, \\*shape of the value), or (n, channels, \\*size of the patch) where ``patch`` is given.
        patch: how the patches lie in the value, for functions that see only a part of it.
        cells: (n,), the cell of the patch grid that each function belongs to; None without a patch.
    """

    coefficients: Tensor
    patch: Patch | None = None
    cells: Tensor | None = None

    def __len__(self) -> int:
        return len(self.coefficients)

    def with_coefficients(self, coefficients: Tensor) -> LinearFunctions:
        """The functions with other coefficients on the same patches."""
        return LinearFunctions(coefficients, self.patch, self.cells)

    def restricted(self, rows: Tensor | slice, dtype: torch.dtype | None = None) -> LinearFunctions:
        """Some of the functions, in another precision if ``dtype`` is given."""
        cells = None if self.cells is None else self.cells[rows]
        return LinearFunctions(self.coefficients.detach()[rows].to(dtype), self.patch, cells)

    def gather(self, layer: Tensor, owner: Tensor | None) -> Tensor:
        """What each function sees of a tensor that every property has.

        Args:
            layer: (properties, \\*shape), for example the slopes of a ReLU layer.
            owner: (n,), the property of each function; None if function i belongs to property i.

        Returns:
            A tensor that broadcasts against ``coefficients``.
        """
        return self.gather_all(WindowedLayers([layer]), owner)[0]

    def gather_all(self, together: WindowedLayers, owner: Tensor | None) -> Sequence[Tensor]:
        """What each function sees of several tensors of one layer: as :meth:`gather`, but in one go."""
        if self.patch is None or self.cells is None:
            if owner is None or len(together.layers[0]) == 1:
                return together.layers  # one property serves every function
            return [layer.index_select(0, owner) for layer in together.layers]
        return together.seen(self.patch, self.cells, owner).unbind(1)

    def whole(self, shape: Shape) -> LinearFunctions:
        """The same functions with coefficients over the whole layer of this shape."""
        if self.patch is None or self.cells is None:
            return self
        height, width = shape[1:]
        patch, (count, channels) = self.patch, self.coefficients.shape[:2]
        cell_y, cell_x = self.cells // patch.grid[1], self.cells % patch.grid[1]
        device = self.coefficients.device
        y = (cell_y * patch.stride[0] - patch.offset[0])[:, None] + torch.arange(patch.size[0], device=device)
        x = (cell_x * patch.stride[1] - patch.offset[1])[:, None] + torch.arange(patch.size[1], device=device)
        inside = ((y >= 0) & (y < height))[:, :, None] & ((x >= 0) & (x < width))[:, None, :]
        place = (y.clamp(0, height - 1)[:, :, None] * width + x.clamp(0, width - 1)[:, None, :]).flatten(1)
        values = (self.coefficients * inside[:, None]).flatten(2)
        result = torch.zeros(count, channels, height * width, dtype=values.dtype, device=device)
        result = result.scatter_add(2, place[:, None].expand(-1, channels, -1), values)
        return LinearFunctions(result.view(count, *shape))

    def plus(self, other: LinearFunctions, shape: Shape) -> LinearFunctions:
        """The sums of two batches of functions of the same value."""
        if self.patch != other.patch:
            return self.whole(shape).plus(other.whole(shape), shape)
        return self.with_coefficients(self.coefficients + other.coefficients)


@dataclass(frozen=True)
class SingleNeurons(LinearFunctions):
    """Functions that are single neurons of a layer, or their negatives.

    Carried back through the layer's weight, each is a row of it. No product is needed, and nothing is rounded.

    Attributes:
        neuron: (n,), the number of each neuron in a vector, or its channel in a feature map; None in other layers.
        sign: (n,), 1 or −1.
    """

    neuron: Tensor | None = None
    sign: Tensor | None = None

    @property
    def is_of_vector(self) -> bool:
        """Whether the layer is a vector of neurons, and no feature map."""
        return self.neuron is not None and self.patch is None

    def rows_of(self, weight: Tensor) -> Tensor:
        """The rows (n, \\*rest) of a weight (neurons or channels, \\*rest) that the functions pick, with signs."""
        assert self.neuron is not None
        assert self.sign is not None
        return weight.index_select(0, self.neuron) * self.sign.view(-1, *[1] * (weight.dim() - 1))


def single_neurons(
    chosen: Tensor, shape: Shape, dtype: torch.dtype, sign: Tensor | None = None
) -> tuple[SingleNeurons, Tensor]:
    """The functions that pick single neurons of a layer, and the property that each belongs to.

    Args:
        chosen: (n, 1 + axes), per function the property and then the neuron's index in the layer.
        shape: the layer's shape. Neurons of a feature map (channels, height, width) get a patch of one pixel.
        dtype: of the coefficients.
        sign: (n,), −1 for the negative of a neuron, and 1 for the neuron itself; all are 1 unless given.
    """
    owner, every = chosen[:, 0], torch.arange(len(chosen), device=chosen.device)
    signs = torch.ones(len(chosen), dtype=dtype, device=chosen.device) if sign is None else sign.to(dtype)
    if len(shape) == 3:
        channels, height, width = shape
        coefficients = torch.zeros(len(chosen), channels, 1, 1, dtype=dtype, device=chosen.device)
        coefficients.view(-1, channels)[every, chosen[:, 1]] = signs
        patch, cells = Patch.single(height, width), chosen[:, 2] * width + chosen[:, 3]
        return SingleNeurons(coefficients, patch, cells, chosen[:, 1], signs), owner
    coefficients = torch.zeros(len(chosen), *shape, dtype=dtype, device=chosen.device)
    coefficients[(every, *chosen[:, 1:].t())] = signs
    neuron = chosen[:, 1] if len(shape) == 1 else None
    return SingleNeurons(coefficients, None, None, neuron, signs), owner
