"""Clipping of boxes by linear bounds: against exact fractions, hand-made cuts and sampling."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from steadynet.graph.operations import Interval
from steadynet.verification.search.box_clipping import Clipped, LinearBounds, clip


def clipped(
    low: Tensor, high: Tensor, coefficients: Tensor, constant: Tensor, is_open: Tensor | None = None
) -> Clipped:
    bounds = LinearBounds.on(Interval(low, high), coefficients, constant)
    return clip(low, high, torch.ones(constant.shape[:2], dtype=torch.bool) if is_open is None else is_open, bounds)


def unit_square() -> tuple[Tensor, Tensor]:
    return torch.zeros(1, 2), torch.ones(1, 2)


def test_one_half_space_cuts_a_corner_to_its_enclosing_box():
    """x + y − 0.5 ≤ 0 leaves a triangle of the unit square, which [0, 0.5]² encloses."""
    found = clipped(*unit_square(), torch.ones(1, 1, 1, 2), torch.full((1, 1, 1), -0.5, dtype=torch.float64))
    assert torch.equal(found.lower, torch.zeros(1, 2))
    assert bool((found.upper >= 0.5).all())
    assert bool((found.upper < 0.502).all())
    assert found.open.tolist() == [[True]]


def test_negative_coefficients_raise_the_lower_corner():
    coefficients = torch.tensor([[[[-1.0, 0.0]]]])
    found = clipped(*unit_square(), coefficients, torch.full((1, 1, 1), 0.25, dtype=torch.float64))
    assert 0.248 < found.lower[0, 0] <= 0.25
    assert found.lower[0, 1] == 0
    assert torch.equal(found.upper, torch.ones(1, 2))


def test_two_conjuncts_that_exclude_each_other_close_a_margin():
    """x ≤ 0.25 and x ≥ 0.75 hold nowhere together, though each holds somewhere."""
    coefficients = torch.tensor([[[[1.0, 0.0], [-1.0, 0.0]]]])
    constant = torch.tensor([[[-0.25, 0.75]]], dtype=torch.float64)
    assert clipped(*unit_square(), coefficients, constant).open.tolist() == [[False]]


def test_two_margins_leave_the_hull_of_what_each_leaves():
    """x ≤ 0.25 may violate one margin and x ≥ 0.75 the other: nothing may be cut off."""
    coefficients = torch.tensor([[[[1.0, 0.0]], [[-1.0, 0.0]]]])
    constant = torch.tensor([[[-0.25], [0.75]]], dtype=torch.float64)
    found = clipped(*unit_square(), coefficients, constant)
    assert torch.equal(found.lower, torch.zeros(1, 2))
    assert torch.equal(found.upper, torch.ones(1, 2))
    only_first = clipped(*unit_square(), coefficients, constant, torch.tensor([[True, False]]))
    assert only_first.upper[0, 0] < 0.26
    assert only_first.open.tolist() == [[True, False]]


def test_a_bound_that_is_missing_or_not_a_number_cuts_nothing():
    for constant, coefficient in (
        (-torch.inf, 1.0),
        (torch.nan, 1.0),
        (torch.inf, 1.0),
        (5.0, torch.nan),
        (5.0, torch.inf),
    ):
        coefficients = torch.full((1, 1, 1, 2), coefficient)
        found = clipped(*unit_square(), coefficients, torch.full((1, 1, 1), constant, dtype=torch.float64))
        assert found.open.tolist() == [[True]]
        assert torch.equal(found.upper - found.lower, torch.ones(1, 2))


def smallest(coefficients: list[float], constant: float, low: list[float], high: list[float]) -> Fraction:
    """The exact minimum of a linear function on a box."""
    corners = product(*([Fraction(one), Fraction(other)] for one, other in zip(low, high, strict=True)))
    slopes = [Fraction(value) for value in coefficients]
    return min(sum((a * x for a, x in zip(slopes, corner, strict=True)), Fraction(constant)) for corner in corners)


def test_what_is_cut_off_is_positive_in_exact_arithmetic():
    """One conjunct, random sizes over many powers of ten: each removed side, and each closed box, by fractions."""
    torch.manual_seed(0)
    parts, inputs, cuts = 400, 3, 0
    scale = 10.0 ** torch.randint(-6, 6, (parts, inputs))
    low = torch.randn(parts, inputs) * scale
    high = low + torch.rand(parts, inputs) * scale * 10.0 ** torch.randint(-6, 1, (parts, inputs))
    slope = torch.randn(parts, inputs) / scale * 10.0 ** torch.randint(-2, 3, (parts, inputs))
    point = low + torch.rand(parts, inputs) * (high - low)
    constant = -(slope.double() * point.double()).sum(1)  # zero at a point of the box, or near its edge
    found = clipped(low, high, slope[:, None, None], constant[:, None, None])
    for part in range(parts):
        old, new = (low[part].tolist(), high[part].tolist()), (found.lower[part].tolist(), found.upper[part].tolist())
        line = slope[part].tolist(), float(constant[part])
        if not bool(found.open[part, 0]):
            assert smallest(*line, *old) > 0
        for axis in range(inputs):
            for removed in ((old[0][axis], new[0][axis]), (new[1][axis], old[1][axis])):
                if removed[0] < removed[1]:
                    side = tuple(
                        [*corner[:axis], end, *corner[axis + 1 :]] for corner, end in zip(old, removed, strict=True)
                    )
                    cuts += 1
                    # a second round may use that another side is gone: the side is positive in one of both boxes
                    other = tuple(
                        [*corner[:axis], end, *corner[axis + 1 :]] for corner, end in zip(new, removed, strict=True)
                    )
                    assert smallest(*line, *side) > 0 or smallest(*line, *other) > 0
    assert cuts > 100


def test_no_violating_point_is_ever_lost():
    """Two margins of two conjuncts: every random point where some margin is violated stays in the box."""
    torch.manual_seed(1)
    parts, inputs = 200, 2
    low = -torch.rand(parts, inputs)
    high = low + torch.rand(parts, inputs)
    slope, constant = torch.randn(parts, 2, 2, inputs), 0.3 * torch.randn(parts, 2, 2).double()
    found = clipped(low, high, slope, constant)
    points = low[:, None] + torch.rand(parts, 400, inputs) * (high - low)[:, None]
    values = torch.einsum("nmci,npi->npmc", slope.double(), points.double()) + constant[:, None]
    violated = (values.amax(3) <= 0) & torch.ones(parts, 400, 2, dtype=torch.bool)
    assert not bool((violated & ~found.open[:, None]).any())
    inside = ((points >= found.lower[:, None]) & (points <= found.upper[:, None])).all(2)
    assert bool((inside | ~violated.any(2)).all())
    assert float((found.upper - found.lower).prod(1).sum()) < 0.9 * float((high - low).prod(1).sum())
    assert bool((~found.open).any())
