"""Which ReLU of a condensed network to split: filtered smart branching, in columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.condensed import CondensedNetwork
from steadynet.bounds.condensed_bounds import ColumnBounds, Columns, lower
from steadynet.verification.search.branching import SIGNS

COLUMNS_AT_ONCE = 256  # sides of candidates that share a pass
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


def choose(
    network: CondensedNetwork,
    batch: Columns,
    found: ColumnBounds,
    count: int,
    out_of_time: Callable[[], bool] = lambda: False,
) -> ColumnChoice:
    """Of ``count`` candidates per column, choose the one with the largest product of gains."""
    if not network.neurons:
        return ColumnChoice([None] * len(batch), found.lower.new_zeros(2, len(batch)))
    scores, places = _scores(network, batch, found).topk(min(count, network.neurons), dim=0)
    quick = _side_bounds(network, batch, places, out_of_time)
    everyone = torch.arange(len(batch), device=places.device)
    gain = (quick.clamp_max(0) - found.lower).clamp_min(1e-4)
    pick = torch.where(scores > 0, gain[0] * gain[1], -torch.inf).argmax(0)
    splittable, chosen = (scores > 0).any(0).tolist(), places[pick, everyone].tolist()
    neurons = [place if valid else None for place, valid in zip(chosen, splittable, strict=True)]
    return ColumnChoice(neurons, quick[:, pick, everyone])


def _scores(network: CondensedNetwork, batch: Columns, found: ColumnBounds) -> Tensor:
    """How much the relaxation of each ReLU takes off the bound, (neurons, n); −1 where its sign is known."""
    behind, depth = found.behind, torch.minimum(network.bounds.upper, -network.bounds.lower)
    cost = torch.where(behind < 0, -behind * batch.upper_shift, LOWER_LINE * behind * depth)
    return torch.where(batch.upper_shift > 0, cost.nan_to_num().clamp_min(1e-12), -1.0)


def _side_bounds(network: CondensedNetwork, batch: Columns, places: Tensor, out_of_time: Callable[[], bool]) -> Tensor:
    """Bounds of both sides of every candidate, (2, candidates, n); −∞ for those that there was no time for.

    A split changes the lines of one ReLU per column. Where columns are few, both sides of several candidates share a
    pass: a pass over few columns takes hardly less time than one over many.
    """
    count, (candidates, columns) = len(SIGNS), places.shape
    quick = batch.slopes.new_full((count, candidates, columns), -torch.inf)
    together = max(1, min(candidates, COLUMNS_AT_ONCE // (count * columns)))
    for first in range(0, candidates, together):
        if out_of_time():
            break
        some = places[first : first + together]
        tried = batch.repeated(count * len(some))
        index = some.flatten().repeat(count), torch.arange(len(tried), device=places.device)
        floor = network.floor[some.flatten(), 0]
        fixed = torch.cat([torch.ones_like(floor) if sign > 0 else floor for sign in SIGNS])
        tried.upper_slope[index], tried.upper_shift[index], tried.slopes[index] = fixed, 0.0, fixed
        quick[:, first : first + together] = lower(network, tried).lower.view(count, len(some), columns)
    return quick
