"""Tables, and numbers as people write them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from steadynet.cli.display.terminal import console

NUMBER = re.compile(r"[-–+\d.,e %×/()]*(s|of \d+)?")


def heading(text: str) -> None:
    """Print a line above a table, or instead of one."""
    console.print(f"\n{text}", style="bold", markup=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], caption: str | None = None) -> None:
    """Print a table. Columns of numbers are aligned to the right, all others to the left."""
    heading(title)
    cells = [[str(cell) for cell in row] for row in rows]
    result = Table(caption=caption, caption_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        is_numeric = all(NUMBER.fullmatch(row[position]) for row in cells)
        result.add_column(column, justify="right" if is_numeric else "left", overflow="fold")
    for row in cells:
        result.add_row(*row)
    console.print(result)


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
