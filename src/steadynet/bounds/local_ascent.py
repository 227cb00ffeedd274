"""Slopes of functions that see few neurons each, as those of a second convolution do: an ascent on small dense blocks.

A neuron of the second convolution is a function of some inputs, and of the unstable ReLUs of the first convolution in
its window. Neurons with the same window share a block, and all blocks are computed at once: (blocks, functions,
neurons).
Like every ascent, this proves nothing. It finds slopes for a pass over the whole network.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.condensed import CondensedNetwork
from steadynet.bounds.condensed_bounds import adam_step
from steadynet.bounds.optimised import Ascent

LOCAL = True  # whether functions of the first layer's neurons are bounded in blocks
MOST_ENTRIES = 1 << 22  # of all blocks, past which columns over all neurons are no slower


@dataclass(frozen=True)
class _Places:
    """Where the entries of padded blocks come from.

    Attributes:
        index: (blocks, longest), the entries of each block; 0 where ``valid`` is not set.
        valid: (blocks, longest), which places hold an entry.
    """

    index: Tensor
    valid: Tensor

    @classmethod
    def of(cls, chosen: Tensor) -> _Places:
        """The places of a mask (blocks, entries)."""
        counts = chosen.sum(1)
        longest = max(1, int(counts.max()))
        block, entry = chosen.nonzero(as_tuple=True)
        slot = torch.arange(len(block), device=chosen.device) - (counts.cumsum(0) - counts)[block]
        index = torch.zeros(len(chosen), longest, dtype=torch.long, device=chosen.device)
        index[block, slot] = entry
        return cls(index, torch.arange(longest, device=chosen.device) < counts[:, None])

    def gather(self, values: Tensor) -> Tensor:
        """One value per entry, (entries,), as (blocks, 1, longest); 0 where there is none."""
        return torch.where(self.valid, values[self.index], 0.0)[:, None]


def local_slopes(network: CondensedNetwork, functions: Tensor, ascent: Ascent, wanted: float) -> Tensor | None:
    """Optimise the slopes of linear functions of the input and of the first layer's neurons.

    Args:
        network: a condensed network of one layer, whose margins are the functions.
        functions: (n, inputs + neurons), the functions; ``network.constants`` is added to them.
        ascent: how slopes are optimised.
        wanted: bounds above this need not be raised further.

    Returns:
        The slopes, (neurons, n); None if blocks would be large.
    """
    if not LOCAL or len(network.layers) != 1:
        return None
    blocks = _Blocks.of(network, functions)
    return None if blocks is None else blocks.ascended(ascent, wanted)


class _Blocks:
    """The functions in blocks, with the lines of the neurons that each block sees."""

    @classmethod
    def of(cls, network: CondensedNetwork, functions: Tensor) -> _Blocks | None:
        """Group the functions that see the same neurons; None if that does not make small blocks."""
        inputs, (layer,) = network.inputs, network.layers
        seen = functions[:, inputs:] != 0
        code = seen.double() @ torch.arange(1, seen.shape[1] + 1, device=seen.device).double().sqrt()
        block = code.unique(return_inverse=True)[1]  # a clash of codes makes a larger block, no wrong one
        count = int(block.max()) + 1
        neurons = torch.zeros(count, seen.shape[1], device=seen.device).index_add_(0, block, seen.float()) > 0
        rows = layer.matrix.dense()
        touched = neurons.to(rows) @ (rows != 0).to(rows) > 0
        own = torch.zeros(count, inputs, device=seen.device)
        touched |= own.index_add_(0, block, (functions[:, :inputs] != 0).float()) > 0
        if count * int(neurons.sum(1).max()) * int(touched.sum(1).max()) > MOST_ENTRIES:
            return None
        return cls(network, functions, block, _Places.of(neurons), _Places.of(touched), rows)

    def __init__(
        self,
        network: CondensedNetwork,
        functions: Tensor,
        block: Tensor,
        neurons: _Places,
        inputs: _Places,
        rows: Tensor,
    ) -> None:
        self.network, self.block, self.neurons, self.floor = (
            network,
            block,
            neurons,
            neurons.gather(network.floor[:, 0]),
        )
        order = block.argsort(stable=True)
        first = torch.searchsorted(block[order].contiguous(), torch.arange(len(neurons.index), device=block.device))
        self.slot = torch.empty_like(block)  # the place of each function in its block
        self.slot[order] = torch.arange(len(block), device=block.device) - first[block[order]]
        shape = len(neurons.index), int(self.slot.max()) + 1
        both = neurons.valid[:, :, None] & inputs.valid[:, None, :]
        self.matrix = torch.where(both, rows[neurons.index[:, :, None], inputs.index[:, None, :]], 0.0)
        self.transposed = self.matrix.transpose(1, 2).contiguous()
        self.added = neurons.gather(network.layers[0].constant)
        self.on_neurons = self._placed(functions[:, network.inputs :], neurons, shape)
        self.on_inputs = self._placed(functions[:, : network.inputs], inputs, shape)
        negative = self.on_neurons.clamp_max(0)
        self.positive = self.on_neurons.clamp_min(0)
        self.through_upper = negative * neurons.gather(network.lines.upper_slope[:, 0])
        self.constant = functions.new_zeros(shape)
        self.constant[block, self.slot] = network.constants
        self.constant = self.constant + (negative * neurons.gather(network.lines.upper_shift[:, 0])).sum(2)
        self.low, self.high = (inputs.gather(side[:, 0]) for side in network.box)

    def _placed(self, functions: Tensor, places: _Places, shape: tuple[int, int]) -> Tensor:
        """Coefficients (n, entries) as (blocks, functions, longest)."""
        index = places.index[self.block]
        taken = torch.where(places.valid[self.block], functions.gather(1, index), 0.0)
        result = functions.new_zeros(*shape, index.shape[1])
        result[self.block, self.slot] = taken
        return result

    def ascended(self, ascent: Ascent, wanted: float) -> Tensor:
        """Raise the bounds by Adam on the slopes; returns the slopes, (neurons, n)."""
        lines = self.network.lines.lower_slope
        slopes = self.neurons.gather(lines[:, 0]).expand_as(self.on_neurons).contiguous()
        first, second = torch.zeros_like(slopes), torch.zeros_like(slopes)
        for iteration in range(ascent.iterations):
            through = torch.addcmul(self.through_upper, self.positive, slopes)
            on_inputs = torch.baddbmm(self.on_inputs, through, self.matrix)
            minimiser = torch.where(on_inputs > 0, self.low, self.high)
            bound = self.constant + (through * self.added).sum(2) + (on_inputs * minimiser).sum(2)
            still = bound <= wanted
            if not bool(still.any()):
                break
            at_minimiser = torch.baddbmm(self.added, minimiser, self.transposed)
            step = adam_step(self.positive * at_minimiser, first, second, ascent, iteration, ascent.slope_rate)
            slopes += step * still[:, :, None]
            torch.maximum(slopes.clamp_(max=1.0), self.floor, out=slopes)
        result = lines.repeat(1, len(self.block))
        valid = self.neurons.valid[self.block]
        column = torch.arange(len(self.block), device=lines.device)[:, None].expand_as(valid)
        result[self.neurons.index[self.block][valid], column[valid]] = slopes[self.block, self.slot][valid]
        return result
