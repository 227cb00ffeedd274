"""Search a strength of a method that costs a given accuracy, in few steps: each one takes a fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from steadynet.errors import UserError

FACTOR = 4.0  # between two strengths at most, until the window lies between two that were tried
_LEAST_STEP = 1.2  # between two strengths at least
_INSIDE = 0.15  # of the way between two strengths, in logarithms: a step between them keeps so far from both
_FLAT = 0.1  # of what is missing: if a weaker strength gains less, the strength is not what costs


class Tried(NamedTuple):
    """A strength, and the drop of accuracy that it costs."""

    strength: float
    drop: float


@dataclass(frozen=True)
class AccuracyWindow:
    """How many percentage points of accuracy may be lost: at least ``low`` and at most ``high``.

    >>> 1.5 in AccuracyWindow(1, 2)
    True
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UserError(f"target drop {self.low:g} to {self.high:g}: the first must be less than the second")

    def __contains__(self, drop: float) -> bool:
        return self.low <= drop <= self.high

    def distance(self, drop: float) -> float:
        """Return how far a drop lies outside of the window; negative inside of it."""
        return max(self.low - drop, drop - self.high)


def search(
    measure: Callable[[float], float],
    window: AccuracyWindow,
    start: float,
    most: int,
    high: float = math.inf,
    expected: Sequence[tuple[float, float]] = (),
) -> tuple[float | None, list[tuple[float, float]]]:
    """Search a strength whose drop of accuracy lies in a window.

    The drop is assumed to grow with the strength. The next strength is where a line through what is known meets the
    middle of the window, over the logarithm of the strength.

    Args:
        measure: Returns the drop at a strength.
        window: Where the drop should lie.
        start: The first strength.
        most: The largest number of strengths to try.
        high: The largest strength.
        expected: Strengths and drops of a similar search. The drops of this one are taken to be as far from these as
            the last one was.

    Returns:
        The strength that was found, or None, and every (strength, drop) that was tried.

    >>> found, tried = search(lambda strength: 2 * strength, AccuracyWindow(5, 6), start=0.5, most=9)
    >>> round(found, 2), len(tried)
    (2.59, 4)
    """
    tried: list[Tried] = []
    strength: float | None = min(start, high)
    while strength is not None and len(tried) < most:
        tried.append(Tried(strength, measure(strength)))
        if tried[-1].drop in window:
            return strength, list(tried)
        strength = _next(tried, window, high, [Tried(*pair) for pair in expected])
    return None, list(tried)


def _next(tried: Sequence[Tried], window: AccuracyWindow, high: float, expected: Sequence[Tried]) -> float | None:
    """The next strength to try; None if none would help."""
    weak = max((one for one in tried if one.drop < window.low), default=None)
    strong = min((one for one in tried if one.drop > window.high), default=None)
    middle = (window.low + window.high) / 2
    if weak and strong:
        if weak.strength >= strong.strength:
            return None  # the drop does not grow with the strength
        guess = _meets([weak, strong], middle)
        span = math.log(strong.strength / weak.strength)
        least, largest = (weak.strength * math.exp(share * span) for share in (_INSIDE, 1 - _INSIDE))
        return math.sqrt(least * largest) if guess is None else min(max(guess, least), largest)
    guess = _guess(tried, middle, expected)
    if weak:
        if weak.strength >= high:
            return None
        return min(max(guess or math.inf, weak.strength * _LEAST_STEP), weak.strength * FACTOR, high)
    assert strong is not None
    if _is_flat(tried, window):
        return None
    return max(min(guess or 0.0, strong.strength / _LEAST_STEP), strong.strength / FACTOR)


def _guess(tried: Sequence[Tried], middle: float, expected: Sequence[Tried]) -> float | None:
    """Where the drop may be in the middle of the window, beyond all strengths that were tried; None if nobody knows."""
    if len(expected) > 1:
        last = tried[-1]
        there = _at(sorted(expected), last.strength)
        if there is not None:
            return _meets(sorted(expected), middle - (last.drop - there))
    return _meets(sorted(tried)[-2:] if tried[-1].drop < middle else sorted(tried)[:2], middle)


def _at(line: Sequence[Tried], strength: float) -> float | None:
    """The drop at a strength on a line through points, sorted by strength, over the logarithm of the strength."""
    pairs = list(pairwise(line))
    for number, (one, other) in enumerate(pairs):
        if strength <= other.strength or number == len(pairs) - 1:
            share = math.log(strength / one.strength) / math.log(other.strength / one.strength)
            return one.drop + share * (other.drop - one.drop)
    return None


def _meets(line: Sequence[Tried], drop: float) -> float | None:
    """The first strength at which a line through points has a drop, also beyond its ends; None where it is level."""
    pairs = list(pairwise(line))
    for number, (one, other) in enumerate(pairs):
        if other.drop > one.drop and (drop <= other.drop or number == len(pairs) - 1):
            share = (drop - one.drop) / (other.drop - one.drop)
            exponent = math.log(one.strength) + share * math.log(other.strength / one.strength)
            return math.exp(min(max(exponent, -600.0), 600.0))
    return None


def _is_flat(tried: Sequence[Tried], window: AccuracyWindow) -> bool:
    """Whether the weakest strengths of at least three cost the same, and too much."""
    if len(tried) < 3:
        return False
    weakest, weaker = sorted(tried)[:2]
    return weaker.drop - weakest.drop < _FLAT * (weakest.drop - window.high)
