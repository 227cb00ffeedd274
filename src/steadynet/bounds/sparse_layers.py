"""Convolutions between the neurons that are active at all, as sparse matrices for backward passes.

Where a network is stable, about half of the neurons of a feature map are never active on the box of a property. A
convolution between those that are left has a fourth of the products, in no regular pattern. As a sparse matrix it takes
a pass back faster than the whole convolution does.

Neurons of a feature map are numbered place by place: those of one place follow each other. Coefficients are stored in
columns, one per function, behind the usual interface: (functions, neurons) is the transpose of what is stored.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadynet.bounds.patches import Patch
from steadynet.bounds.row_blocks import Block, Blocks, CompressedRows
from steadynet.graph.operations import Convolution, Interval, Operation, Shape
from steadynet.graph.rounding import Rounding

Indices = NDArray[np.int64]
LEAST_BLOCK = 1024  # entries of an average block for which dense blocks are faster than a sparse matrix


@dataclass(frozen=True)
class MapNeurons:
    """Some neurons of a feature map, place by place.

    Attributes:
        shape: the shape of the whole map: channels, height, width.
        places: (n,), the place of each, in rising order.
        channels: (n,), the channel of each.
    """

    shape: Shape
    places: Indices
    channels: Indices

    @classmethod
    def where(cls, mask: Tensor) -> MapNeurons:
        """The neurons of a mask (channels, height, width)."""
        places, channels = np.nonzero(mask.flatten(1).t().contiguous().numpy())
        return cls(tuple(mask.shape), places, channels)

    @classmethod
    def all_of(cls, shape: Shape) -> MapNeurons:
        """Every neuron of a map, or of an image."""
        return cls.where(torch.ones(shape, dtype=torch.bool))

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def elements(self) -> Tensor:
        """(n,), their numbers in the whole map, channel by channel."""
        return torch.from_numpy(self.channels * (self.shape[1] * self.shape[2]) + self.places)


@dataclass(frozen=True, eq=False)
class SparseConvolution(Operation):
    """A convolution between some neurons of two feature maps, or of the input; it can be gone back through only.

    Attributes:
        convolution: the convolution.
        inputs: the neurons that it reads.
        outputs: the neurons that it computes.
        is_first: whether it reads the input of the network, all of it.
    """

    convolution: Convolution
    inputs: MapNeurons
    outputs: MapNeurons
    is_first: bool

    @cached_property
    def transposed(self) -> Blocks | CompressedRows:
        """The matrix that takes coefficients back: (inputs, outputs)."""
        weight, convolution = self.convolution.weight, self.convolution
        seen = Windows.between(self.inputs, self.outputs, weight.shape[2:], convolution.stride, convolution.padding)
        values = weight.detach().permute(1, 2, 3, 0).flatten(1)  # (channels of the inputs, taps · channels)
        entry = seen.taps * len(weight) + self.outputs.channels[seen.neurons]
        counts = np.bincount(self.inputs.places, minlength=len(seen.first) - 1)
        if int(counts @ np.diff(seen.first)) >= LEAST_BLOCK * np.count_nonzero(counts):
            return seen.blocks(values, entry)
        return CompressedRows(seen.matrix(values.reshape(-1).numpy(), entry, values.shape[1]))

    @cached_property
    def _bias(self) -> Tensor | None:
        bias = self.convolution.bias
        return None if bias is None else bias.detach().double()[torch.from_numpy(self.outputs.channels)]

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        """The coefficients of the inputs, in columns."""
        result = self.transposed @ rows.t().contiguous()
        if not self.is_first:
            return [result.t()]
        back = result.new_zeros(len(self.inputs), result.shape[1])  # the input is stored channel by channel
        back[self.inputs.elements] = result
        return [back.t().unflatten(1, shapes[0])]

    def constant(self, rows: Tensor, dtype: torch.dtype) -> Tensor | float:
        """What the bias adds."""
        return 0.0 if self._bias is None else (self._bias @ rows.t().double()).to(dtype)

    def apply(self, *inputs: Tensor) -> Tensor:
        """Not possible: this form only takes functions back."""
        raise TypeError("a sparse convolution only takes functions back")

    def interval(self, *inputs: Interval) -> Interval:
        """Not possible either."""
        raise TypeError("a sparse convolution only takes functions back")

    def rounding(self, *largest: Tensor) -> Rounding | None:
        """Not possible either: that of the whole convolution is on the safe side."""
        raise TypeError("a sparse convolution only takes functions back")


@dataclass(frozen=True)
class Windows:
    """Which neurons of a feature map see each neuron of an earlier one, and where in their windows.

    The neurons that see a place are the same for all channels of it, so they are listed once per place.

    Attributes:
        inputs: the neurons that are seen.
        width: how many neurons see.
        first: (places + 1,), where the list of each place begins.
        neurons: the lists, one after the other: the numbers of the neurons that see.
        taps: where in the window of each the place is.
    """

    inputs: MapNeurons
    width: int
    first: Indices
    neurons: Indices
    taps: Indices

    @classmethod
    def between(
        cls,
        inputs: MapNeurons,
        outputs: MapNeurons,
        size: Sequence[int],
        stride: Sequence[int],
        offset: Sequence[int],
    ) -> Windows:
        """The windows of neurons whose windows have a size, a stride and an offset, as those of a patch do."""
        height, width = inputs.shape[1:]
        rows = _seeing(height, outputs.shape[1], size[0], stride[0], offset[0])  # (height, kernel height)
        columns = _seeing(width, outputs.shape[2], size[1], stride[1], offset[1])
        place = rows[:, None, :, None] * outputs.shape[2] + columns[None, :, None, :]
        place[np.broadcast_to((rows[:, None, :, None] < 0) | (columns[None, :, None, :] < 0), place.shape)] = -1
        place = place.reshape(-1)  # (places · taps,), the place of the later map; −1 for none
        starts = np.searchsorted(outputs.places, np.arange(outputs.shape[1] * outputs.shape[2] + 1))
        counts = np.where(place < 0, 0, np.diff(starts)[place])
        segment = np.repeat(np.arange(len(place)), counts)
        ends = np.cumsum(counts)
        neurons = starts[place[segment]] + np.arange(ends[-1]) - (ends - counts)[segment]
        taps = int(size[0] * size[1])
        first = np.concatenate([[0], ends[taps - 1 :: taps]])
        return cls(inputs, len(outputs), first, neurons, segment % taps)

    def blocks(self, values: Tensor, entry: Indices) -> Blocks:
        """The sparse matrix (inputs, neurons that see) of some values, one block per place.

        Args:
            values: (channels of the inputs, ...), where the entries are taken from.
            entry: per element of the lists, which of a channel's values it has.
        """
        neurons, entries = torch.from_numpy(self.neurons), torch.from_numpy(entry)
        channels, places = torch.from_numpy(self.inputs.channels), self.inputs.places
        ends = np.flatnonzero(np.diff(places, append=-1)) + 1
        blocks, begin = [], 0
        for end in ends.tolist():
            seen = slice(*self.first[places[begin] : places[begin] + 2].tolist())
            chosen = values.index_select(1, entries[seen]).index_select(0, channels[begin:end])
            blocks.append(Block(slice(begin, end), neurons[seen], chosen))
            begin = end
        return Blocks((len(self.inputs), self.width), blocks)

    def matrix(self, values: NDArray[np.floating], entry: Indices, step: int) -> Tensor:
        """The sparse matrix (inputs, neurons that see) of some values.

        Args:
            values: where the entries are taken from.
            entry: per element of the lists, which value it has for channel 0 of its place.
            step: how far the value of the next channel is.
        """
        counts = np.diff(self.first)[self.inputs.places]
        ends = np.cumsum(counts)
        row = np.repeat(np.arange(len(counts)), counts)
        element = np.arange(len(row)) + (self.first[self.inputs.places] - (ends - counts))[row]
        chosen = values[entry[element] + (step * self.inputs.channels)[row]]
        return _compressed(np.concatenate([[0], ends]), self.neurons[element], chosen, (len(counts), self.width))


def _seeing(length: int, grid: int, size: int, stride: int, offset: int) -> Indices:
    """Along one axis, which window sees each place with each of its elements, (length, size); −1 for none."""
    start = np.arange(length)[:, None] + offset - np.arange(size)[None, :]
    return np.where((start >= 0) & (start % stride == 0) & (start // stride < grid), start // stride, -1)


def _compressed(starts: Indices, columns: Indices, values: NDArray[np.floating], shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that its sparse matrices are new
        rows, places = (torch.from_numpy(part.astype(np.int32)) for part in (starts, columns))
        return torch.sparse_csr_tensor(rows, places, torch.from_numpy(values), size=shape)


def coefficients_of_input(known: Tensor, patch: Patch, outputs: MapNeurons, image: Shape) -> Tensor:
    """Coefficients of neurons on the windows of the input that they see, as a matrix (inputs, neurons).

    Args:
        known: (n, channels of the input · size of the patch), the coefficients.
        patch: where the windows lie.
        outputs: the neurons.
        image: the shape of the input.
    """
    seen = Windows.between(MapNeurons.all_of(image), outputs, patch.size, patch.stride, patch.offset)
    taps = patch.size[0] * patch.size[1]
    return seen.matrix(known.contiguous().view(-1).numpy(), seen.neurons * (image[0] * taps) + seen.taps, taps)
