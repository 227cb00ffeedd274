"""Tables on the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table

from steadynet.cli.display.terminal import console

SHORT = 40  # letters of a name that is never broken: it may be copied to the next command
NUMBER = re.compile(r"[-–+\d.,e %×/()]*(s|of \d+( images\))?)?")


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
        whole = position == 0 and all(len(row[0]) <= SHORT for row in cells)
        justify: Literal["left", "right"] = "right" if is_numeric else "left"
        result.add_column(column, justify=justify, overflow="fold", no_wrap=whole)
    for row in cells:
        result.add_row(*row)
    console.print(result)
