"""Which ReLU of a condensed network to split, in columns.

Filtered smart branching tries the most promising ReLUs on both sides. Here the most promising one is taken without a
trial: that leads to a few more subproblems, but each takes less time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.condensed import CondensedNetwork
from steadynet.bounds.condensed_bounds import ColumnBounds, Columns, lower
from steadynet.verification.search.branching import SIGNS

LOWER_LINE = 0.01  # how much the gap below a ReLU counts against the gap above it, which no slope closes


@dataclass(frozen=True)
class ColumnChoice:
    """Where to split each column, and quick bounds of its two sides, which prove nothing.

    Attributes:
        neurons: per column the ReLU; None for a leaf, where no ReLU is unstable.
        sides: (2, n), bounds of the margin on either side.
    """

    neurons: list[int | None]
    sides: Tensor


def choose(network: CondensedNetwork, batch: Columns, found: ColumnBounds) -> ColumnChoice:
    """Choose the ReLU whose relaxation takes most off the bound of each column, and bound both sides."""
    if not network.neurons:
        return ColumnChoice([None] * len(batch), found.lower.new_zeros(2, len(batch)))
    scores, places = _scores(network, batch, found).max(0)
    pairs = zip(places.tolist(), (scores > 0).tolist(), strict=True)
    return ColumnChoice([place if valid else None for place, valid in pairs], _side_bounds(network, batch, places))


def _scores(network: CondensedNetwork, batch: Columns, found: ColumnBounds) -> Tensor:
    """How much the relaxation of each ReLU takes off the bound, (neurons, n); −1 where its sign is known."""
    behind, depth = found.behind, torch.minimum(network.bounds.upper, -network.bounds.lower)
    cost = torch.where(behind < 0, -behind * batch.upper_shift, LOWER_LINE * behind * depth)
    return torch.where(batch.upper_shift > 0, cost.nan_to_num().clamp_min(1e-12), -1.0)


def _side_bounds(network: CondensedNetwork, batch: Columns, places: Tensor) -> Tensor:
    """Bounds of both sides of one ReLU per column, (2, n): a split changes its lines."""
    tried = batch.repeated(len(SIGNS))
    index = places.repeat(len(SIGNS)), torch.arange(len(tried), device=places.device)
    floor = network.floor[places, 0]
    fixed = torch.cat([torch.ones_like(floor) if sign > 0 else floor for sign in SIGNS])
    tried.upper_slope[index], tried.upper_shift[index], tried.slopes[index] = fixed, 0.0, fixed
    return lower(network, tried).lower.view(len(SIGNS), -1)
