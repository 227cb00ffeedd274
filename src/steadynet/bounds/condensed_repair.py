"""Raises bounds on a condensed network that are nearly high enough, such as those of another network's leaves.

Where a bound shall end is known, so each step is as long as it takes to get there if the bound were linear (Polyak's
step for subgradients), and a little longer. More bounds arrive after a few such steps than with Adam, which knows no
aim.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from steadynet.bounds.condensed import CondensedNetwork
from steadynet.bounds.condensed_bounds import ColumnBounds, Columns, ascent_directions, into_range, lower

MANY = 64  # columns, from which on a repair gives up those that are far from there
FEWER = 0.7  # share of the columns at work: with fewer left, the others are put aside
LONGER = 1.3  # times the step of a linear bound
BEYOND = 0.1  # of the way there: how far behind it the aim is
KEPT_DIRECTION = 0.3  # share of the last direction in the next one, against steps to and fro
MULTIPLIERS = 0.2  # weight of the multipliers beside the slopes
LONGEST = 50.0  # times the direction


def repair(
    network: CondensedNetwork,
    batch: Columns,
    steps: int,
    out_of_time: Callable[[], bool] = lambda: False,
    wanted: float = 0.0,
) -> Tensor:
    """Move slopes and multipliers of many columns, each until its bound is above ``wanted``.

    If many are left halfway, those are given up that have come less than a third of their way.

    Returns:
        The bounds (n,), with which the slopes and multipliers of the batch agree.
    """
    found = lower(network, batch)
    reached, start = found.lower.clone(), found.lower
    climb = _Climb(network, batch, start, wanted)
    part, active, entries = batch, torch.arange(len(batch), device=start.device), None
    moving = start <= wanted
    for step in range(steps):
        if 2 * step == steps and int(moving.sum()) > MANY:
            moving &= 3 * found.lower >= 2 * start[active] + wanted
        left = moving.nonzero().flatten()
        if not len(left) or out_of_time():
            break
        if len(left) < FEWER * len(active):
            stays = torch.isin(part.splits.column, left)
            _put(batch, part, active, entries)
            entries = stays.nonzero().flatten() if entries is None else entries[stays]
            part, found, active, moving = part.restricted(left), found.restricted(left), active[left], moving[left]
            climb.restrict(left, stays)
        climb.step(part, found, moving)
        found = lower(network, part)
        reached[active] = found.lower
        moving &= found.lower <= wanted
    _put(batch, part, active, entries)
    return reached


def _put(batch: Columns, part: Columns, active: Tensor, entries: Tensor | None) -> None:
    """Write slopes and multipliers of a part into the batch that it was taken from."""
    if entries is not None:
        batch.slopes[:, active], batch.splits.beta[entries] = part.slopes, part.splits.beta


class _Climb:
    """Steps of columns towards their aims."""

    def __init__(self, network: CondensedNetwork, batch: Columns, start: Tensor, wanted: float) -> None:
        self.network = network
        self.aim = wanted + BEYOND * (wanted - start).clamp_min(0)
        self.movable = batch.upper_shift > 0
        self.last: tuple[Tensor, Tensor] | None = None

    def restrict(self, columns: Tensor, entries: Tensor) -> None:
        """Go on with some columns; ``entries`` is a mask of their splits."""
        self.aim, self.movable = self.aim[columns], self.movable[:, columns]
        if self.last is not None:
            self.last = self.last[0][:, columns], self.last[1][entries]

    def step(self, batch: Columns, found: ColumnBounds, moving: Tensor) -> None:
        """Move the slopes and multipliers of the ``moving`` columns."""
        splits, column = batch.splits, batch.splits.column
        on_slopes, on_multipliers = ascent_directions(self.network, batch, found)
        on_slopes *= self.movable
        ahead = on_slopes, on_multipliers
        if self.last is not None:
            ahead = on_slopes.lerp(self.last[0], KEPT_DIRECTION), on_multipliers.lerp(self.last[1], KEPT_DIRECTION)
        self.last = ahead
        slopes = batch.slopes + _flattened(ahead[0])
        into_range(slopes, self.network)
        slopes -= batch.slopes
        betas = (splits.beta + MULTIPLIERS * _flattened(ahead[1])).clamp_min_(0) - splits.beta
        gain = (on_slopes * slopes).sum(0).index_add_(0, column, on_multipliers * betas)
        length = (LONGER * (self.aim - found.lower) / gain.clamp_min(1e-9)).clamp(0.0, LONGEST) * moving
        batch.slopes += slopes.mul_(length)
        into_range(batch.slopes, self.network)
        splits.beta += betas * length[column]
        splits.beta.clamp_min_(0)


def _flattened(gradient: Tensor) -> Tensor:
    """sign(g) · |g|^¾: a direction between the steepest one and the one in which all move alike."""
    size = gradient.abs()
    return (size * size.sqrt()).sqrt_().copysign_(gradient)
