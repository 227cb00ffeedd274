"""Lines below tanh on an interval: for any slope the highest valid intercept, and which slopes are worth taking.

tanh is odd, so a line above it on [l, u] is a line below it on [−u, −l], turned by half a circle. Everything here is
computed in float64.

**Validity.** For any slope s ≥ 0, s·z + c lies below tanh on [l, u] if c ≤ min (tanh(z) − s·z). Left of zero tanh is
convex: with any point p there, tanh(z) − s·z ≥ tanh(p) − s·p + (tanh'(p) − s)·(z − p), which is smallest at an end of
the convex piece. Right of zero it is concave, so that the minimum is at an end. Nothing rests on p being the best
point, so it need not be precise. PyTorch is assumed to compute exp and tanh in float64 to within 16 unit roundoffs
(of 1 for tanh, of the result for exp); :data:`_MARGIN` covers that and every rounding of the formulas.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from steadynet.graph.rounding import unit_roundoff

_MARGIN = 64 * unit_roundoff(torch.float64)
_NARROW = 1e-6  # below this width, a chord is taken for a tangent
_KNOTS = 2048  # of the table of tangents


class Piece(NamedTuple):
    """Intervals [low, high] of tanh, in float64, with its values at their ends."""

    low: Tensor
    high: Tensor
    at_low: Tensor
    at_high: Tensor

    @classmethod
    def of(cls, low: Tensor, high: Tensor) -> Piece:
        """The pieces over some intervals."""
        low, high = low.double(), high.double()
        return cls(low, high, low.tanh(), high.tanh())

    def turned(self) -> Piece:
        """The same pieces, turned by half a circle."""
        return Piece(-self.high, -self.low, -self.at_high, -self.at_low)

    def where(self, chosen: Tensor, other: Piece) -> Piece:
        """These pieces where ``chosen``, and others elsewhere."""
        return Piece(*(torch.where(chosen, one, two) for one, two in zip(self, other, strict=True)))


def derivative(point: Tensor) -> Tensor:
    """The derivative of tanh, precise relative to its size also where it is tiny."""
    small = (-2 * point.abs()).exp()
    return 4 * small / (1 + small).square()


def intercept_below(slope: Tensor, piece: Piece) -> Tensor:
    """An intercept c with slope · z + c ≤ tanh(z) on each piece, less than 1e-14 of its size below the best one.

    Args:
        slope: any slopes ≥ 0, in float64. The result is differentiable in them.
        piece: the pieces.

    >>> piece = Piece.of(torch.tensor(-1.0), torch.tensor(2.0))
    >>> round(float(intercept_below(torch.tensor(1.0).double(), piece)), 4)  # tanh(2) − 2
    -1.036
    """
    low, high = piece.low, piece.high
    with torch.no_grad():
        start, turn = low.clamp_max(0), high.clamp_max(0)  # the ends of the convex part
        point = torch.maximum(torch.minimum(_tangent_point(slope), turn), start)
        small = (2 * point).exp()
        steepness = 4 * small / (1 + small).square()
        lost = torch.maximum((slope - steepness) * (start - point), (slope - steepness) * (turn - point))
        convex = low < 0
        steepest = torch.where(convex, steepness, 0.0) + slope
        margin = _MARGIN * (1 + steepest * low.abs() + slope * high.abs())
        at_point = torch.where(convex, (small - 1) / (1 + small) - lost, piece.at_low)
        point = torch.where(convex, point, low)
    return torch.minimum(at_point - slope * point, piece.at_high - slope * high) - margin


def _tangent_point(slope: Tensor) -> Tensor:
    """The point z ≤ 0 where tanh has this slope: tanh'(z) = 1 − tanh²(z)."""
    root = (1 - slope).clamp_min(0).sqrt()
    return slope.log() / 2 - root.log1p()


class SlopeRange(NamedTuple):
    """The slopes of the lines below some pieces that no other line beats everywhere, and one that suits most."""

    smallest: Tensor
    largest: Tensor
    usual: Tensor


def slopes_below(piece: Piece) -> SlopeRange:
    """Which slopes to take for lines below some pieces.

    The best lines are tangents of the convex part, up to the tangent that meets the piece again at its upper end. If
    there is no such tangent, the chord is best. The usual line leaves the smallest area to tanh.

    >>> usual = slopes_below(Piece.of(torch.tensor(-1.0), torch.tensor(0.0))).usual
    >>> round(float(usual), 4)  # the tangent in the middle
    0.7864
    """
    low, high, at_low, at_high = piece
    width, middle = high - low, (low + high) / 2
    at_start, at_middle, at_end = derivative(low), derivative(middle), derivative(high)
    chord = torch.where(width > _NARROW, (at_high - at_low) / width.clamp_min(_NARROW), at_middle).clamp(0, 1)
    convex, only_chord = high <= 0, (low >= 0) | (at_start >= chord)
    steepest = torch.where(convex, at_end, torch.maximum(tangent_slope(high), at_start))
    usual = torch.where(middle < 0, torch.minimum(at_middle, steepest), steepest)
    only_chord = only_chord & ~convex
    return SlopeRange(*(torch.where(only_chord, chord, slope) for slope in (at_start, steepest, usual)))


def tangent_slope(high: Tensor) -> Tensor:
    """The slope of the line through (high, tanh(high)) that touches tanh left of zero, from a table; high ≥ 0.

    Its error, about 1e-6, makes bounds a little less tight, and never wrong.
    """
    table = _tangent_slopes().to(high.device)
    place = high.clamp_min(0) / (1 + high.clamp_min(0)) * _KNOTS
    place = torch.where(place < _KNOTS, place, _KNOTS - 0.5)
    left = place.detach().long()
    share = place - left
    return (table[left] * (1 - share) + table[left + 1] * share) / (1 + high.clamp_min(0))


@cache
def _tangent_slopes() -> Tensor:
    """The table: (1 + high) · slope at evenly spaced places high / (1 + high) from 0 to 1."""
    with torch.inference_mode(False), torch.no_grad():
        place = torch.arange(_KNOTS, dtype=torch.float64, device="cpu") / _KNOTS
        high = place / (1 - place)
        left, right = -high - 1, torch.zeros_like(high)
        for _ in range(60):  # halve the interval that holds the point where the line touches
            middle = (left + right) / 2
            above = high.tanh() - middle.tanh() > derivative(middle) * (high - middle)
            left, right = torch.where(above, middle, left), torch.where(above, right, middle)
        return torch.cat([derivative(left) * (1 + high), torch.tensor([2.0, 2.0], dtype=torch.float64, device="cpu")])
