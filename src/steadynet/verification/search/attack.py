"""Attacks on open margins: descent from random points, and from the points where bounds are attained."""

from __future__ import annotations

import torch
from torch import Tensor

from steadynet.attacks.pgd import descend, misclassified
from steadynet.attacks.region import InputRegion
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.property_batch import PropertyBatch, SearchState
from steadynet.verification.search.subproblem import Subproblem

NEARBY, NEARBY_STEPS, NEARBY_STEP = 64, 30, 1e-3  # points around a leaf's minimiser, and the descent from each
JITTERED, JITTER = 512, 8  # more points, each input moved by up to so many of its units in the last place


def attack_margins(state: SearchState, decisions: Decisions) -> SearchState:
    """Attack every open margin by itself, from random points: where it is negative, there is a counterexample."""
    budget = state.batch.budget
    owner, margin = (side.repeat(budget.restarts) for side in state.open_margins(decisions))
    for rows in torch.arange(len(owner), device=owner.device).split(budget.batch):
        left = rows[decisions.still_open(owner[rows])]
        if len(left):
            descend_on_margins(state.batch, decisions, owner[left], margin[left], None, budget.attack_steps)
            decisions.charge(owner[left].tolist())
    return state


def descend_on_margins(
    batch: PropertyBatch,
    decisions: Decisions,
    owner: Tensor,
    margin: Tensor,
    start: Tensor | None,
    steps: int,
    step_size: float = 1 / 8,
) -> None:
    r"""Descend on margin[k] of property owner[k], and refute the properties for which that finds a counterexample.

    Args:
        batch: the properties.
        decisions: where a counterexample is noted.
        owner: (n,), the properties.
        margin: (n,), the margins.
        start: (n, \*image), the first points; uniform random points if None.
        steps: how many steps to take.
        step_size: the length of the first step, as a share of each input's width; it falls to zero.
    """
    part, row = batch.properties[owner], batch.margins[owner, margin]
    lower, width = part.region.lower, part.region.upper - part.region.lower
    # The descent runs in shares of each input's width, as inputs may have widths of any size.
    unit = InputRegion(torch.zeros_like(width), torch.ones_like(width))
    shares = descend(
        lambda tried: (part.network(torch.addcmul(lower, tried, width)) * row).sum(1),
        unit,
        unit.sample() if start is None else unit.project((start - lower) / width.clamp_min(1e-30)),
        steps=steps,
        step_size=step_size,
        momentum=0.75,
        shrink=True,
        stop=decisions.out_of_time(owner.tolist()),
    )
    points = part.region.project(torch.addcmul(lower, shares, width))
    wrong = misclassified(part.network, points, part.labels)
    for found in wrong.nonzero().flatten().tolist():
        decisions.refute(int(owner[found]), points[found], DecidedBy.ATTACK)


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
