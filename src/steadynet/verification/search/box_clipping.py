"""Clipping: the linear bounds of a backward pass cut off the sides of a box that cannot hold a counterexample.

A pass gives a · x + c ≤ f(x) for every x of the box. A counterexample needs f(x) ≤ 0 for every conjunct f of some
margin, so it lies where each a · x + c ≤ 0. What one such half-space leaves of a box is enclosed by a smaller box.

A side is cut off only if the linear bound, evaluated on that side with every rounding counted, is positive there: the
same proof as that of a part.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.rounding import input_room
from steadynet.graph.operations import Interval

ROUNDS = 2  # a cut across one input may allow further ones across the others
_CONSTANT_ROOM, _LEAST = 2.0**-40, 1e-200  # room for the rounding of float64: of the constants; and where these vanish
_SHORTER = 2.0**-10  # by this share of its length a cut is shorter than computed, so that rounding leaves it positive


@dataclass(frozen=True)
class LinearBounds:
    """Linear lower bounds of the conjuncts of every margin on the boxes of n parts, in float64.

    Attributes:
        coefficients: (n, margins, conjuncts, inputs).
        constant: (n, margins, conjuncts), with every rounding of the pass taken off; −∞ where there is no bound.
        room: (n, inputs), by how much boxes are widened to make up for the rounding of what is computed here.
    """

    coefficients: Tensor
    constant: Tensor
    room: Tensor

    @classmethod
    def on(cls, box: Interval, coefficients: Tensor, constant: Tensor) -> LinearBounds:
        """Bounds that hold on some boxes, from the coefficients and constants of a pass."""
        safe = constant - _CONSTANT_ROOM * constant.abs()
        safe = torch.where(safe.isfinite() & coefficients.isfinite().all(3), safe, -torch.inf)
        return cls(coefficients.nan_to_num(0, 0, 0).double(), safe, input_room(box).flatten(1).double())

    def of(self, rows: Tensor) -> LinearBounds:
        """The bounds of some of the parts."""
        return LinearBounds(self.coefficients[rows], self.constant[rows], self.room[rows])


@dataclass(frozen=True)
class Clipped:
    """What clipping leaves of the boxes of n parts.

    Attributes:
        lower: (n, inputs), the lower corners.
        upper: (n, inputs), the upper corners.
        open: (n, margins), which margins may still be violated there.
    """

    lower: Tensor
    upper: Tensor
    open: Tensor


def clip(lower: Tensor, upper: Tensor, is_open: Tensor, bounds: LinearBounds) -> Clipped:
    """Shrink boxes to what may hold a counterexample to one of their open margins.

    Args:
        lower: (n, inputs), the lower corners. The boxes must lie in those that the bounds hold on.
        upper: (n, inputs), the upper corners.
        is_open: (n, margins), the margins that are not proved.
        bounds: linear lower bounds of their conjuncts.
    """
    low, high = (
        side.double()[:, None].expand(-1, is_open.shape[1], -1) for side in (lower, upper)
    )  # (n, margins, inputs): each margin clips a box of its own
    closed = ~is_open
    for _ in range(ROUNDS):
        for conjunct in range(bounds.constant.shape[2]):
            a, c = bounds.coefficients[:, :, conjunct], bounds.constant[:, :, conjunct]
            closed = closed | (_smallest(a, c, low, high, bounds.room) > _LEAST)
            low, high = _cut(a, c, low, high, bounds.room, lower.dtype)
    for conjunct in range(bounds.constant.shape[2]):
        a, c = bounds.coefficients[:, :, conjunct], bounds.constant[:, :, conjunct]
        closed = closed | (_smallest(a, c, low, high, bounds.room) > _LEAST)
    # What lies outside all boxes of the open margins violates none of them.
    hull_low = low.masked_fill(closed[:, :, None], torch.inf).amin(1)
    hull_high = high.masked_fill(closed[:, :, None], -torch.inf).amax(1)
    nothing = closed.all(1, keepdim=True)
    return Clipped(
        torch.where(nothing, lower, hull_low.to(lower)), torch.where(nothing, upper, hull_high.to(upper)), ~closed
    )


def _terms(a: Tensor, low: Tensor, high: Tensor, room: Tensor) -> Tensor:
    """The smallest value of each a · x on a box, with room for rounding: (n, margins, inputs)."""
    return a * ((low + high) / 2) - a.abs() * ((high - low) / 2 + room[:, None])


def _smallest(a: Tensor, c: Tensor, low: Tensor, high: Tensor, room: Tensor) -> Tensor:
    """A lower bound of a · x + c on each box, (n, margins)."""
    return c + _terms(a, low, high, room).sum(2)


def _cut(a: Tensor, c: Tensor, low: Tensor, high: Tensor, room: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cut off each box the side of every input where a · x + c > 0, whatever the other inputs are."""
    terms = _terms(a, low, high, room)
    others = c[:, :, None] + (terms.sum(2, keepdim=True) - terms)  # the smallest rest, without one input
    root = -others / torch.where(a == 0, 1.0, a)  # beyond it, a · x + c is positive
    above = torch.maximum(root + _SHORTER * (high - root), low).to(dtype).to(a)
    below = torch.minimum(root - _SHORTER * (root - low), high).to(dtype).to(a)
    above, below = torch.maximum(above, low), torch.minimum(below, high)
    # The proof: each side is a box, and the linear bound is positive on all of it.
    upper_side = others + _terms(a, above, high, room)
    lower_side = others + _terms(a, low, below, room)
    cut_above = (a > 0) & (above < high) & (upper_side > _LEAST)
    cut_below = (a < 0) & (below > low) & (lower_side > _LEAST)
    return torch.where(cut_below, below, low), torch.where(cut_above, above, high)
