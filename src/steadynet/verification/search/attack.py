"""Attacks on open margins: descent from random points, and from the points where bounds are attained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from steadynet.attacks.pgd import descend, misclassified
from steadynet.attacks.region import InputRegion
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.property_batch import PropertyBatch, SearchState
from steadynet.verification.search.subproblem import Subproblem

QUICK_STEPS = 10  # steps of the first attack
NEARBY, NEARBY_STEPS, NEARBY_STEP = 64, 30, 1e-3  # points around a leaf's minimiser, and the descent from each
BEST_ON_THE_WAY = True  # whether the best point of a descent is tried, beside its last one
DIVERSIFIED = 3  # every third restart begins from diversified points; 0 for none
DIVERSIFYING_STEPS, DIVERSIFYING_STEP = 10, 0.5  # the way to such a point, in shares of each input's width
HOPE = 2.0  # a descent ends where no way would get there if it went on so many times as fast as last
PACE = 2  # steps by which that is measured
JITTERED, JITTER = 512, 8  # more points, each input moved by up to so many of its units in the last place


def attack_quickly(state: SearchState, decisions: Decisions) -> SearchState:
    """Attack every open margin once, with a few steps: enough for most properties that an attack refutes at all."""
    budget = state.batch.budget
    restarts, steps = min(1, budget.restarts), min(QUICK_STEPS, budget.attack_steps)
    return _attack(state, decisions, state.open_margins(decisions), restarts, steps, hopeful=True)


def attack_before_bounds(batch: PropertyBatch, decisions: Decisions) -> None:
    """Attack the smallest margin of every property once, with a few steps, before anything is bounded.

    On large networks, this takes a fraction of the time of the first bounds, which refuted properties are spared.
    """
    budget, owner = batch.budget, torch.tensor(sorted(decisions.open), device=batch.margins.device)
    if not budget.restarts:
        return
    for rows in owner.split(budget.batch):
        steps = min(QUICK_STEPS, budget.attack_steps)
        descend_on_margins(batch, decisions, rows, None, None, steps, hopeful=True)
        decisions.charge(rows.tolist())


def attack_margins(state: SearchState, decisions: Decisions) -> SearchState:
    """Attack every open margin that is searched on the whole network: where it is negative, there is a counterexample.

    Each restart begins from random points. Every third one moves them apart first (:func:`diversified`).
    """
    budget = state.batch.budget
    return _attack(state, decisions, state.margins_of_whole(decisions), budget.restarts, budget.attack_steps)


def _attack(
    state: SearchState,
    decisions: Decisions,
    pairs: tuple[Tensor, Tensor],
    restarts: int,
    steps: int,
    hopeful: bool = False,
) -> SearchState:
    budget = state.batch.budget
    owner, margin = (side.repeat(restarts) for side in pairs)
    restart = torch.arange(restarts, device=owner.device).repeat_interleave(len(pairs[0]))
    for rows in torch.arange(len(owner), device=owner.device).split(budget.batch):
        left = rows[decisions.still_open(owner[rows])]
        if len(left):
            start = _starts(state.batch, decisions, owner[left], restart[left])
            descend_on_margins(state.batch, decisions, owner[left], margin[left], start, steps, hopeful=hopeful)
            decisions.charge(owner[left].tolist())
    return state


def _starts(batch: PropertyBatch, decisions: Decisions, owner: Tensor, restart: Tensor) -> Tensor:
    """The first points of some restarts: random ones, diversified in every third restart."""
    start = batch.properties.region[owner].sample()
    chosen = (restart % DIVERSIFIED == DIVERSIFIED - 1).nonzero().flatten() if DIVERSIFIED else owner[:0]
    if len(chosen):
        start[chosen] = diversified(batch, decisions, owner[chosen])
    return start


def diversified(batch: PropertyBatch, decisions: Decisions, owner: Tensor) -> Tensor:
    r"""Points with diverse outputs, to begin an attack from: (n, \*image), point k in the box of property owner[k].

    From a random point, a few long steps climb a random direction of the output (Tashiro et al., 2020). Random points
    alone have similar outputs where the box has many inputs.
    """
    direction = 2 * torch.rand(len(owner), batch.margins.shape[2], device=owner.device).to(batch.margins) - 1
    way = _Way(batch.properties.network, batch.properties.region[owner], -direction[:, None])
    return way.descend(None, decisions.out_of_time(owner.tolist()), DIVERSIFYING_STEPS, DIVERSIFYING_STEP)


def descend_on_margins(
    batch: PropertyBatch,
    decisions: Decisions,
    owner: Tensor,
    margin: Tensor | None,
    start: Tensor | None,
    steps: int,
    step_size: float = 1 / 8,
    hopeful: bool = False,
) -> None:
    r"""Descend on margin[k] of property owner[k], and refute the properties for which that finds a counterexample.

    Args:
        batch: the properties.
        decisions: where a counterexample is noted.
        owner: (n,), the properties.
        margin: (n,), the margins; None for the smallest margin of each property, whichever that is on the way.
        start: (n, \*image), the first points; uniform random points if None.
        steps: how many steps to take.
        step_size: the length of the first step, as a share of each input's width; it falls to zero.
        hopeful: whether to end where no way is likely to get there.
    """
    functions = batch.margins[owner] if margin is None else batch.margins[owner, margin][:, None]
    way = _Way(batch.properties.network, batch.properties.region[owner], functions)
    out_of_time = decisions.out_of_time(owner.tolist())

    def stop() -> bool:
        return (hopeful and way.is_hopeless(steps)) or out_of_time()

    last = way.descend(start, stop, steps, step_size, momentum=0.75, shrink=True)
    for points in (last, way.best) if BEST_ON_THE_WAY else (last,):
        wrong = misclassified(way.network, points, batch.properties.labels[owner])
        for found in wrong.nonzero().flatten().tolist():
            decisions.refute(int(owner[found]), points[found], DecidedBy.ATTACK)


class _Way:
    """A descent on the least of the functions k · output in box k, which remembers the best point of its way.

    A thin counterexample may be narrower than a step: the way meets it, and does not end there.
    """

    def __init__(self, network: nn.Module, region: InputRegion, functions: Tensor) -> None:
        self.network, self.region, self.functions = network, region, functions
        self.width = region.upper - region.lower
        self.least = torch.full_like(functions[:, 0, 0], torch.inf)
        self.shares = torch.zeros_like(region.lower)
        self._earlier: list[Tensor] = []  # the least values so far, after each step

    @property
    def best(self) -> Tensor:
        """The best points of the way."""
        return self._points(self.shares)

    def descend(
        self, start: Tensor | None, stop: Callable[[], bool], steps: int, step_size: float, **settings: Any
    ) -> Tensor:
        """Descend in shares of each input's width, as inputs may have widths of any size; returns the last points."""
        unit = InputRegion(torch.zeros_like(self.width), torch.ones_like(self.width))
        first = unit.sample() if start is None else (start - self.region.lower) / self.width.clamp_min(1e-30)
        return self._points(
            descend(self._value, unit, unit.project(first), steps=steps, step_size=step_size, stop=stop, **settings)
        )

    def is_hopeless(self, steps: int) -> bool:
        """Whether no way of so many steps would get below zero. As steps shrink, a way gets slower and slower."""
        taken = len(self._earlier)
        if taken <= PACE:
            return False
        gained = self._earlier[-1 - PACE] - self.least
        return not bool((self.least - HOPE * (steps - taken + 1) / PACE * gained <= 0).any())

    def _value(self, shares: Tensor) -> Tensor:
        scores = self.network(torch.addcmul(self.region.lower, shares, self.width))
        values = (scores[:, None] * self.functions).sum(2).amin(1)
        with torch.no_grad():
            better = values < self.least
            self.least = torch.where(better, values, self.least)
            self._earlier.append(self.least)
            self.shares = torch.where(better.view(-1, *[1] * (shares.dim() - 1)), shares, self.shares)
        return values

    def _points(self, shares: Tensor) -> Tensor:
        return self.region.project(torch.addcmul(self.region.lower, shares, self.width))


def try_nearby(batch: PropertyBatch, decisions: Decisions, leaf: Subproblem, point: Tensor) -> bool:
    """Look for a counterexample around the exact minimiser of a leaf; returns whether there is one.

    A thin counterexample may lie between the numbers of float32: the minimiser itself, rounded to the nearest number,
    need not be one. So each input is also rounded up or down at random, or moved by a few units in its last place, and
    the margin is descended on from the nearest of these points.
    """
    owner = leaf.owner
    region = batch.properties.region[owner : owner + 1]
    exact = point[None].to(region.lower.device)
    nearest = exact.to(region.lower.dtype)
    below = torch.where(nearest > exact, torch.nextafter(nearest, torch.full_like(nearest, -torch.inf)), nearest)
    above = torch.where(nearest < exact, torch.nextafter(nearest, torch.full_like(nearest, torch.inf)), nearest)
    rounded_up = torch.rand(NEARBY, *nearest.shape[1:], device=nearest.device) < 0.5
    points = torch.cat([nearest, below, above, torch.where(rounded_up, above, below)])
    unit = torch.nextafter(nearest.abs(), torch.full_like(nearest, torch.inf)) - nearest.abs()
    moves = torch.randint(-JITTER, JITTER + 1, (JITTERED, *nearest.shape[1:]), device=nearest.device)
    every = torch.cat([points, nearest + moves * unit])
    points, every = (torch.minimum(torch.maximum(some, region.lower), region.upper) for some in (points, every))
    wrong = misclassified(batch.properties.network, every, batch.properties.labels[owner].expand(len(every)))
    for row in wrong.nonzero().flatten().tolist():
        if decisions.refute(owner, every[row], DecidedBy.LINEAR_PROGRAM):
            return True
    owners = torch.full((len(points),), owner, device=nearest.device)
    margins = torch.full_like(owners, leaf.margin)
    descend_on_margins(batch, decisions, owners, margins, points, NEARBY_STEPS, step_size=NEARBY_STEP)
    return owner not in decisions.open
