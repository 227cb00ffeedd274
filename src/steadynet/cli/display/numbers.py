"""Numbers as people write them."""

from __future__ import annotations


def percent(share: float | None) -> str:
    """Write a share as a percentage.

    >>> percent(0.975), percent(None)
    ('97.5 %', '–')
    """
    return "–" if share is None else f"{100 * share:.1f} %"


def count_of(count: int, total: int) -> str:
    """Write a count with its total.

    >>> count_of(38, 100)
    '38/100 (38.0 %)'
    """
    return f"{count}/{total} ({percent(count / total)})" if total else "–"


def seconds(value: float | None) -> str:
    """Write a time in seconds with the digits that matter.

    >>> [seconds(value) for value in (0.0123, 4.321, 61.04, None)]
    ['0.012 s', '4.32 s', '61.0 s', '–']
    """
    if value is None:
        return "–"
    return f"{value:.{3 if value < 1 else 2 if value < 10 else 1}f} s"


def duration(seconds: float) -> str:
    """Write a longer time in the unit that suits it.

    >>> [duration(seconds) for seconds in (8, 90, 7300)]
    ['8 s', '2 min', '2.0 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
