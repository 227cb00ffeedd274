"""The leaves of a proof of another network, as a few arrays: there may be thousands, and most need one pass only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import CondensedNetwork
from steadynet.bounds.condensed_bounds import Columns, SplitColumns
from steadynet.bounds.refinement_by_slopes import NumberedNeurons, places
from steadynet.verification.search.condensed_part import Part


@dataclass(frozen=True)
class EarlierLeaves:
    """Leaves of trees, one tree per margin; those of one tree together are everything, whatever the network is.

    Attributes:
        layers: the neurons that they speak of.
        margin: (n,), the margin of each leaf.
        splits: the ReLUs that each leaf holds on one side, with multipliers ≥ 0.
        row: (n,), its row in the table of slopes, from 1 on; 0 stands for the slopes of CROWN.
        table: (rows, neurons), lower slopes in steps of 1/65535, as the file has them: most are read once or never.
    """

    layers: tuple[NumberedNeurons, ...]
    margin: Tensor
    splits: SplitColumns
    row: Tensor
    table: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.margin)

    @classmethod
    def joined(cls, one: EarlierLeaves, other: EarlierLeaves) -> EarlierLeaves:
        """Leaves of the same proof."""
        splits = SplitColumns(
            torch.cat([one.splits.neuron, other.splits.neuron]),
            torch.cat([one.splits.column, other.splits.column + len(one)]),
            torch.cat([one.splits.sign, other.splits.sign]),
            torch.cat([one.splits.beta, other.splits.beta]),
        )
        margin, row = torch.cat([one.margin, other.margin]), torch.cat([one.row, other.row])
        return replace(one, margin=margin, splits=splits, row=row)

    def of(self, chosen: Tensor) -> EarlierLeaves:
        """Some of the leaves, by their numbers."""
        splits = self.splits.restricted(chosen, len(self))
        return replace(self, margin=self.margin[chosen], splits=splits, row=self.row[chosen])

    def of_margins(self, chosen: Tensor) -> EarlierLeaves:
        """The leaves of some margins; (margins,) is a mask."""
        return self.of(chosen[self.margin].nonzero().flatten())

    def split(self, neuron: Tensor) -> EarlierLeaves:
        """Both sides of a ReLU of each leaf: all leaves with (n,) these at zero or above, then all with them below."""
        count, splits = len(self), self.splits
        every = torch.arange(2 * count, device=neuron.device)
        sign = torch.ones(2 * count, dtype=splits.sign.dtype, device=neuron.device)
        sign[count:] = -1.0
        both = SplitColumns(
            torch.cat([splits.neuron, splits.neuron, neuron, neuron]),
            torch.cat([splits.column, splits.column + count, every]),
            torch.cat([splits.sign, splits.sign, sign]),
            torch.cat([splits.beta, splits.beta, torch.zeros_like(sign)]),
        )
        return replace(self, margin=self.margin.repeat(2), splits=both, row=self.row.repeat(2))

    def not_empty(self, network: BoundedNetwork) -> EarlierLeaves:
        """Without the leaves that hold a ReLU on the side where it never is in the box of a network.

        Such a leaf is empty: at most it holds points of its edge, which belong to the leaf across the edge, too.
        """
        signs = [_signs(network, layer) for layer in self.layers]
        against = torch.cat(signs)[self.splits.neuron] * self.splits.sign < 0
        empty = torch.zeros(len(self), dtype=torch.bool, device=against.device)
        empty[self.splits.column[against]] = True
        return self.of((~empty).nonzero().flatten()) if bool(against.any()) else self

    def slopes(self) -> Tensor:
        """The lower slopes of each leaf, (n, neurons); they say nothing where ``row`` is 0."""
        stored = np.zeros((len(self), self.table.shape[1]), np.float32)
        named = (self.row > 0).cpu().numpy()
        stored[named] = self.table[self.row.cpu().numpy()[named] - 1]
        return torch.from_numpy(stored).to(self.row.device).div_(65535)

    def numbers_in(self, network: CondensedNetwork) -> tuple[Tensor, Tensor]:
        """The number of each neuron in a condensed network, and that of its neurons here; −1 where there is none."""
        place = torch.cat([_places(network, layer) for layer in self.layers])
        known = (place >= 0).nonzero().flatten()
        number = torch.full((network.neurons,), -1, device=place.device)
        number[place[known]] = known
        return place, number

    def on_condensed(self, network: CondensedNetwork) -> Columns:
        """The leaves for bounds on a condensed network. A split of a ReLU that is not there is left out."""
        (place, number), default = self.numbers_in(network), network.lines.lower_slope
        # a ReLU whose sign is known has one slope, whatever the leaf says
        named = (number >= 0) & (network.lines.upper_shift[:, 0] > 0)
        slopes = default.repeat(1, len(self))
        if len(place):  # a proof by the slopes of CROWN alone names no neurons
            own = self.slopes().t().contiguous().to(default).index_select(0, number.clamp_min(0))
            slopes = torch.where(named[:, None] & (self.row > 0), own, default)
        splits, number = self.splits, place[self.splits.neuron]
        kept = number >= 0
        held = SplitColumns(number[kept], splits.column[kept], splits.sign[kept], splits.beta[kept])
        return Columns.of(network, self.margin, slopes, held)


@dataclass(frozen=True)
class EarlierProof:
    """The proof of the same property of another network, with ReLU layers of the same sizes.

    Attributes:
        layers: the neurons that it speaks of.
        leaves: its leaves.
        refined: per position of a layer, the slopes behind its refined bounds (:mod:`refinement_by_slopes`).
        least: per margin, the least bound of the leaves that are proved already, and not among ``leaves`` any more.
        is_tried: whether its leaves are what is left of a try on the whole network, where bounds are refined since.
    """

    layers: tuple[NumberedNeurons, ...]
    leaves: EarlierLeaves
    refined: Mapping[int, Tensor]
    least: Mapping[int, float] = field(default_factory=dict)
    is_tried: bool = False


def held_of(batch: Columns | EarlierLeaves) -> list[list[tuple[int, int, float]]]:
    """Per subproblem, its split ReLUs: (neuron, sign, multiplier)."""
    result: list[list[tuple[int, int, float]]] = [[] for _ in range(len(batch.margin))]
    splits = batch.splits
    columns = (splits.column, splits.neuron, splits.sign, splits.beta)
    for column, neuron, sign, beta in zip(*(values.tolist() for values in columns), strict=True):
        result[column].append((neuron, int(sign), beta))
    return result


def parts_of(batch: Columns, bounds: Tensor) -> list[Part]:
    """The columns of a batch as subproblems of a search, with bounds (n,) by which these are ordered."""
    slopes, found = batch.slopes.t().half(), []
    for row, (held, margin, bound) in enumerate(
        zip(held_of(batch), batch.margin.tolist(), bounds.tolist(), strict=True)
    ):
        neurons, signs, betas = zip(*held, strict=True) if held else ((), (), ())
        found.append(Part(margin, bound, neurons, signs, betas, slopes[row]))
    return found


def _signs(network: BoundedNetwork, layer: NumberedNeurons) -> Tensor:
    """Per neuron of a layer, the sign of its input in the box; 0 where it may have both."""
    lower, upper = (side.flatten()[layer.elements] for side in network.bounds[layer.position])
    return torch.where(lower >= 0, 1.0, torch.where(upper <= 0, -1.0, 0.0)).to(lower)


def _places(network: CondensedNetwork, layer: NumberedNeurons) -> Tensor:
    """Per neuron of a layer, its number in a condensed network; −1 if it is not there."""
    for ours in network.layers:
        if ours.position == layer.position:
            place = places(ours, layer)
            return torch.where(place >= 0, place + ours.rows.start, -1)
    return torch.full_like(layer.elements, -1)
