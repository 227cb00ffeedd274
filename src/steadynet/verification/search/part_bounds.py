"""Parts of boxes, and bounds of every conjunct of every margin on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork, RelaxedNetwork
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.queries import BoundQuery, Trail
from steadynet.graph.operations import Interval
from steadynet.verification.search.box_clipping import LinearBounds, clip
from steadynet.verification.search.conjunctions import Conjunctions
from steadynet.verification.search.mixtures import mixtures
from steadynet.verification.search.rounding import confirmed

CLIPPING = True  # whether linear bounds clip the boxes
MIXTURES = True  # whether mixtures of conjuncts are bounded, too
ALL_CONJUNCTS = True  # whether the input to halve is chosen by all conjuncts of the worst margin, or by its best one


@dataclass(frozen=True)
class Parts:
    """Some parts of properties' boxes, one row per part. Is every margin positive on each?

    Attributes:
        owner: (n,), the property of each part.
        depth: (n,), how often the box was halved.
        box: the parts.
        bounds: bounds of the ReLU inputs that hold on the part that each part was cut from.
        open: (n, margins), the margins that are not proved on the part that each part was cut from.
    """

    owner: Tensor
    depth: Tensor
    box: Interval
    bounds: Mapping[int, Interval]
    open: Tensor

    def __len__(self) -> int:
        return len(self.owner)

    def of(self, rows: Tensor | slice) -> Parts:
        """Some of the parts."""
        bounds = {position: known.of(rows) for position, known in self.bounds.items()}
        return Parts(self.owner[rows], self.depth[rows], self.box.of(rows), bounds, self.open[rows])

    @classmethod
    def joined(cls, blocks: list[Parts]) -> Parts:
        """The parts of several blocks in one."""
        if len(blocks) == 1:
            return blocks[0]

        def join(intervals: list[Interval]) -> Interval:
            return Interval(*(torch.cat(sides) for sides in zip(*intervals, strict=True)))

        return cls(
            torch.cat([block.owner for block in blocks]),
            torch.cat([block.depth for block in blocks]),
            join([block.box for block in blocks]),
            {position: join([block.bounds[position] for block in blocks]) for position in blocks[0].bounds},
            torch.cat([block.open for block in blocks]),
        )


@dataclass(frozen=True)
class BoundedParts:
    """Parts after bounding.

    Attributes:
        parts: the parts, with their own bounds, and the margins that are not proved on them.
        linear: linear lower bounds of the conjuncts of these margins.
        worst: (n,), the smallest bound of a margin, where the margin's bound is that of its best conjunct.
        slope: (n, inputs), the coefficients of that conjunct's linear bound.
        steep: (n, inputs), how much the conjuncts of the worst margin depend on each input.
    """

    parts: Parts
    linear: LinearBounds
    worst: Tensor
    slope: Tensor
    steep: Tensor

    def of(self, rows: Tensor) -> BoundedParts:
        """Some of the parts."""
        return BoundedParts(
            self.parts.of(rows), self.linear.of(rows), self.worst[rows], self.slope[rows], self.steep[rows]
        )

    def clipped(self, box: Interval) -> Parts:
        """The parts with other boxes inside their own, clipped by the linear bounds."""
        parts = self.parts
        if not CLIPPING:
            return replace(parts, box=box)
        shape = box.lower.shape
        found = clip(box.lower.flatten(1), box.upper.flatten(1), parts.open, self.linear)
        return replace(parts, box=Interval(found.lower.view(shape), found.upper.view(shape)), open=found.open)


@dataclass(frozen=True)
class _Table:
    """Bounds of the functions k of every margin of every part: the conjuncts, and at last a mixture of them.

    Attributes:
        bound: (n, margins, functions), with every rounding counted.
        slope: (n, margins, functions, inputs), the coefficients of their linear bounds.
        constant: (n, margins, functions), the constants of these, with every rounding of the pass taken off.
    """

    bound: Tensor
    slope: Tensor
    constant: Tensor

    def enter(self, place: tuple[Tensor, ...], relaxed: RelaxedNetwork, functions: Tensor) -> None:
        """Bound some functions of the network's output; ``place`` has the part, the margin and k of each."""
        query, trail = BoundQuery(relaxed.network.output, LinearFunctions(functions), place[0]), Trail()
        found = relaxed.lower(query, trail)
        self.bound[place] = confirmed(relaxed, query, found.proved, found.value)
        if trail.on_input is not None:
            assert trail.constant is not None
            assert found.error is not None
            self.slope[place] = trail.on_input.flatten(1)
            self.constant[place] = trail.constant - found.error


def bound_parts(parts: Parts, network: BoundedNetwork, conjunctions: Conjunctions) -> BoundedParts:
    """Bound every conjunct of the open margins of each part, and a mixture where this may do better.

    Args:
        parts: the parts.
        network: the network up to the conjuncts over the parts' boxes.
        conjunctions: the margins as conjunctions.
    """
    relaxed, box = network.relaxed(), parts.box
    margins, conjuncts = conjunctions.used.shape
    bound = box.lower.new_full((len(parts), margins, conjuncts + 1), -torch.inf, dtype=torch.float64)
    table = _Table(bound, box.lower.new_zeros(*bound.shape, box.lower[0].numel()), bound.clone())
    part, margin, conjunct = (parts.open[:, :, None] & conjunctions.used).nonzero(as_tuple=True)
    table.enter((part, margin, conjunct), relaxed, conjunctions.functions[parts.owner[part], margin, conjunct])
    if MIXTURES and conjuncts > 1:
        _enter_mixtures(table, parts, relaxed, conjunctions)
    best, which = table.bound.max(2)  # a margin is at least each of its conjuncts, and each mixture of them
    worst, margin = best.masked_fill(~parts.open, torch.inf).min(1)
    every = torch.arange(len(parts), device=margin.device)
    slope = table.slope[every, margin, which[every, margin]]
    steep = table.slope[every, margin, :conjuncts].abs().sum(1) if ALL_CONJUNCTS else slope.abs()
    still_open = parts.open & ~(best > 0)
    linear = LinearBounds.on(box, table.slope, table.constant)
    return BoundedParts(replace(parts, bounds=network.bounds, open=still_open), linear, worst, slope, steep)


def _enter_mixtures(table: _Table, parts: Parts, relaxed: RelaxedNetwork, conjunctions: Conjunctions) -> None:
    """Bound one mixture of the conjuncts of each margin that none of them proves."""
    several = conjunctions.used.sum(1) > 1
    part, margin = (parts.open & several & ~(table.bound.amax(2) > 0)).nonzero(as_tuple=True)
    if not len(part):
        return
    lower, upper = (side.flatten(1)[part].double() for side in parts.box)
    slope, constant = (values[part, margin, :-1].double() for values in (table.slope, table.constant))
    weights, useful = mixtures(slope, constant, lower, upper)
    part, margin, weights = part[useful], margin[useful], weights[useful].to(table.slope.dtype)
    if not len(part):
        return
    functions = (weights[:, :, None] * conjunctions.functions[parts.owner[part], margin]).sum(1)
    table.enter((part, margin, torch.full_like(part, -1)), relaxed, functions)
