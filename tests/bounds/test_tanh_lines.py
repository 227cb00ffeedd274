"""Lines around sigmoid and tanh, against arbitrary-precision arithmetic and numbers computed by hand."""

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.s_shaped_lines import Line, SShapedLines
from steadynet.bounds.tanh_lines import Piece, derivative, intercept_below, slopes_below, tangent_slope
from steadynet.graph.operations import Interval
from steadynet.graph.s_shaped import UNITS

DIGITS = 60
TRUE = {"tanh": mpmath.tanh, "sigmoid": lambda z: 1 / (1 + mpmath.exp(-z))}
ends = st.one_of(
    st.floats(-8, 8, width=32),
    st.floats(-(2**-10), 2**-10, width=32),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 1.1754944e-38, 20.0, -20.0, 44.0, 90.0, -90.0, 3e38, -3e38, 2**-24]),
)


def tensor(*numbers, dtype=torch.float32):
    return torch.tensor(numbers, dtype=dtype)


def points_between(low, high):
    """Places where a line may cross the function: the ends, their neighbourhoods, zero, and a grid in both scales."""
    low, high = mpmath.mpf(low), mpmath.mpf(high)
    shares = [mpmath.mpf(k) / 40 for k in range(41)] + [mpmath.mpf(10) ** -k for k in range(2, 40, 4)]
    points = [low + share * (high - low) for share in shares] + [high - share * (high - low) for share in shares]
    near = [mpmath.mpf(k) / 8 for k in range(-80, 81, 3)] + [mpmath.mpf(0)]
    return points + [point for point in near if low <= point <= high]


def assert_encloses(function, low, high, lower, upper):
    """Check lower ≤ f ≤ upper at many points of [low, high], exactly as the lines' numbers are."""
    with mpmath.workdps(DIGITS):
        lines = [(mpmath.mpf(float(line.slope)), mpmath.mpf(float(line.shift))) for line in (lower, upper)]
        for point in points_between(low, high):
            value = TRUE[function](point)
            assert lines[0][0] * point + lines[0][1] <= value <= lines[1][0] * point + lines[1][1], point


@pytest.mark.parametrize("function", ["sigmoid", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=150)
@given(ends, ends, st.floats(0, 1), st.floats(0, 1))
def test_lines_enclose_the_true_function(function, dtype, one, other, below, above):
    low, high = sorted(tensor(one, other).tolist())
    lines = SShapedLines.around(Interval(tensor(low, dtype=dtype), tensor(high, dtype=dtype)), UNITS[function])
    assert_encloses(function, low, high, lines.lower, lines.upper)
    moved = [
        lines.movable.lines(LinearFunctions(tensor(sign, dtype=dtype)[None]), None, tensor(share, dtype=dtype)[None])
        for sign, share in ((1.0, below), (-1.0, above))
    ]
    assert_encloses(function, low, high, *moved)


@settings(max_examples=150)
@given(ends, ends, st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 1e-300, 5e-324, 1.5, 1e10])))
def test_any_slope_has_a_valid_intercept(one, other, slope):
    low, high = sorted(tensor(one, other).tolist())
    found = intercept_below(tensor(slope, dtype=torch.float64), Piece.of(tensor(low), tensor(high)))
    below = Line(tensor(slope, dtype=torch.float64), found)
    assert_encloses("tanh", low, high, below, Line(tensor(0.0), tensor(math.inf)))


@pytest.mark.parametrize(
    ("low", "high", "slope", "best"),
    [
        (-1.0, 0.0, 1 - math.tanh(0.5) ** 2, -math.tanh(0.5) + 0.5 * (1 - math.tanh(0.5) ** 2)),  # tangent at −1/2
        (0.0, 2.0, math.tanh(2) / 2, 0.0),  # the chord through zero
        (-1.0, 2.0, 1.0, math.tanh(2) - 2),  # as steep as tanh at zero: touches at the upper end
        (-3.0, 5.0, 0.0, math.tanh(-3)),  # a constant
        (3.0, 5.0, 0.5, math.tanh(5) - 2.5),
    ],
)
def test_intercepts_by_hand(low, high, slope, best):
    found = float(intercept_below(tensor(slope, dtype=torch.float64), Piece.of(tensor(low), tensor(high))))
    assert best - 1e-13 <= found <= best


def test_the_gradient_of_an_intercept_is_minus_the_point_where_the_line_touches():
    slope = tensor(1 - math.tanh(0.5) ** 2, dtype=torch.float64).requires_grad_()
    intercept_below(slope, Piece.of(tensor(-1.0), tensor(1.0))).sum().backward()
    assert slope.grad.item() == pytest.approx(0.5)


@pytest.mark.parametrize("high", [1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 30.0, 1000.0])
def test_tangents_through_the_upper_end(high):
    """The line through (high, tanh(high)) with the table's slope touches tanh left of zero."""
    slope = float(tangent_slope(tensor(high, dtype=torch.float64)))
    with mpmath.workdps(30):
        touch = -mpmath.acosh(1 / mpmath.sqrt(slope))
        gap = mpmath.tanh(high) - slope * (high - touch) - mpmath.tanh(touch)
    assert abs(float(gap)) < 2e-4
    assert float(touch) < 0


@settings(max_examples=100)
@given(st.floats(-6, 6), st.floats(1e-3, 6))
def test_the_usual_line_is_the_highest_in_the_middle(low, width):
    """Of all lines below, none is much higher in the middle of the interval than the usual one."""
    piece = Piece.of(tensor(low, dtype=torch.float64), tensor(low + width, dtype=torch.float64))
    middle, usual = (piece.low + piece.high) / 2, slopes_below(piece).usual
    slopes = torch.linspace(0, 1, 2001, dtype=torch.float64)
    rivals = intercept_below(slopes, Piece(*(part.expand(2001) for part in piece))) + slopes * middle
    assert float(intercept_below(usual, piece) + usual * middle) >= float(rivals.max()) - 1e-4


def test_the_derivative_is_precise_where_it_is_tiny():
    points = [0.0, 1e-9, 0.3, -2.0, 20.0, -300.0]
    with mpmath.workdps(DIGITS):
        for point, found in zip(points, derivative(tensor(*points, dtype=torch.float64)).tolist(), strict=True):
            true = 1 / mpmath.cosh(mpmath.mpf(point)) ** 2
            assert abs(mpmath.mpf(found) - true) <= 1e-14 * true


def test_bounds_that_are_infinite_or_no_numbers_give_no_line():
    for low, high in ((-math.inf, 0.0), (0.0, math.inf), (math.nan, 1.0)):
        lines = SShapedLines.around(Interval(tensor(low), tensor(high)), UNITS["tanh"])
        assert not (lines.lower.shift.isfinite().all() and lines.lower.slope.isfinite().all())
        assert not (lines.upper.shift.isfinite().all() and lines.upper.slope.isfinite().all())
