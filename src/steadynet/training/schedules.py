"""Schedules of the radius and the learning rate: pure functions of how far the training is."""

from __future__ import annotations

from collections.abc import Sequence

RATE_DROP = 0.2  # each drop multiplies the learning rate by this
_BEND = 0.25  # the share of a smooth ramp that is curved


def ramp(share: float, kind: str) -> float:
    """Return the share of ε that is used after this share of its rise.

    A ``linear`` ramp rises evenly. A ``smooth`` one grows like t⁴ over the first quarter, then linearly; the two pieces
    meet with the same value and slope.

    >>> [round(ramp(share, "smooth"), 3) for share in (-1, 0, 0.25, 0.5, 1, 2)]
    [0.0, 0.0, 0.077, 0.385, 1.0, 1.0]
    """
    share = min(max(share, 0.0), 1.0)
    if kind == "linear":
        return share
    scale = 1 / (4 * _BEND**3 * (1 - _BEND) + _BEND**4)
    if share < _BEND:
        return scale * share**4
    return scale * (_BEND**4 + 4 * _BEND**3 * (share - _BEND))


def radius_share(epochs_done: float, hold: float, warmup: float, kind: str) -> float:
    """Return the share of ε that is trained for after this many epochs.

    Args:
        epochs_done: How many epochs are done; need not be whole.
        hold: For how many epochs the share stays 0.
        warmup: Over how many epochs it then rises to 1.
        kind: How it rises: ``linear`` or ``smooth``, see :func:`ramp`.

    >>> [radius_share(epochs, 1.0, 4.0, "linear") for epochs in (0.5, 1, 3, 5, 6)]
    [0.0, 0.0, 0.5, 1.0, 1.0]
    """
    if epochs_done <= hold and hold:
        return 0.0
    return ramp((epochs_done - hold) / warmup, kind) if warmup else 1.0


def remaining_rate(share: float, drops: Sequence[float]) -> float:
    """Return what is left of the learning rate after this share of the training: a fifth after each drop.

    >>> [round(remaining_rate(share, (0.5, 0.75)), 3) for share in (0.4, 0.5, 0.9)]
    [1.0, 0.2, 0.04]
    """
    return RATE_DROP ** sum(share >= drop for drop in drops)
