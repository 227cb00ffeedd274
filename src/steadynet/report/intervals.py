"""Confidence intervals for a share, such as that of the images that are proved robust."""

from __future__ import annotations

import math
from dataclasses import dataclass

METHOD = "Clopper–Pearson"
CONFIDENCE = 0.95
HALVINGS = 60  # each halves the error of an end


@dataclass(frozen=True)
class Interval:
    """A confidence interval for a share.

    Attributes:
        low: Its lower end, from 0 to 1.
        high: Its upper end, from 0 to 1.
        confidence: In at least this share of samples, such an interval holds the true share.
        method: How it was computed.
    """

    low: float
    high: float
    confidence: float = CONFIDENCE
    method: str = METHOD


def clopper_pearson(successes: int, count: int, confidence: float = CONFIDENCE) -> Interval:
    """Compute the exact (Clopper–Pearson) interval for the share of successes.

    Args:
        successes: How many of the drawn things have the property.
        count: How many were drawn, independently of each other.
        confidence: The confidence of the two-sided interval.

    Returns:
        The interval. Both ends are rounded outwards.

    Raises:
        ValueError: Nothing was drawn, or there are more successes than things.

    With ten successes of ten, the lower end p solves p¹⁰ = 2.5 %:

    >>> interval = clopper_pearson(10, 10)
    >>> round(interval.low, 6), round(0.025 ** (1 / 10), 6), interval.high
    (0.691503, 0.691503, 1.0)
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"{successes} of {count} is no share")
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else _lower_end(successes, count, tail)
    high = 1.0 if successes == count else 1 - _lower_end(count - successes, count, tail)
    return Interval(low, high, confidence)


def _lower_end(successes: int, count: int, tail: float) -> float:
    """Return the share at which this many successes or more have the probability ``tail``, rounded down."""
    low, high = 0.0, successes / count
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_least(successes, count, middle) < tail else (low, middle)
    return low


def _at_least(successes: int, count: int, share: float) -> float:
    """Return the probability of this many successes or more among ``count`` draws."""
    if share <= 0:
        return 0.0
    logs = (
        math.lgamma(count + 1)
        - math.lgamma(number + 1)
        - math.lgamma(count - number + 1)
        + number * math.log(share)
        + (count - number) * math.log1p(-share)
        for number in range(successes, count + 1)
        if share < 1
    )
    return math.fsum(map(math.exp, logs))
