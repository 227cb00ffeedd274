"""Lay out headings, text and tables on pages, and write them as a PDF with matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

from steadynet.files import write_atomically

WIDTH, HEIGHT = 595.0, 842.0  # A4, in points
LEFT, TOP, BOTTOM = 56.0, 56.0, 62.0
COLUMN = WIDTH - 2 * LEFT  # the width of the text
GAP = 8.0  # between the columns of a table
LEADING = 1.38  # height of a line, in multiples of the size of its letters
KEPT_TOGETHER = 9  # lines of a text that are not divided between pages
INDENT = "    "  # of the second and later lines of a command


@dataclass(frozen=True)
class Style:
    """How a text looks; ``before`` is the space above it in points."""

    size: float = 9.0
    bold: bool = False
    mono: bool = False
    colour: str = "#1a1a1a"
    before: float = 4.0

    def font(self) -> FontProperties:
        """The font of the text."""
        family = "DejaVu Sans Mono" if self.mono else "DejaVu Sans"
        return FontProperties(family=family, size=self.size, weight="bold" if self.bold else "normal")


BODY = Style()
TITLE = Style(size=18, bold=True, before=0)
HEADING = Style(size=12, bold=True, before=16)
SUBHEADING = Style(size=10, bold=True, before=9)
NOTE = Style(size=7.5, colour="#555555", before=3)
CELL = Style(size=8, before=2)
HEAD_CELL = replace(CELL, bold=True)
CODE = Style(size=7.5, mono=True, before=4)
HASH = Style(size=6.4, mono=True, before=2)


@dataclass(frozen=True)
class Text:
    """A heading, a paragraph or a command. ``with_next`` keeps it on the page of what follows."""

    text: str
    style: Style = BODY
    with_next: bool = False


@dataclass(frozen=True)
class Table:
    """A table. ``shares`` are the widths of its columns; ``styles`` those of its cells, column by column."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    shares: tuple[float, ...]
    styles: tuple[Style, ...] = ()

    def style(self, column: int) -> Style:
        """The style of the cells in a column."""
        return self.styles[column] if self.styles else CELL


Block = Text | Table


@dataclass(frozen=True)
class Placed:
    """A line of text on a page; ``x`` and ``y`` are where it begins, in points from the lower left corner."""

    x: float
    y: float
    text: str
    style: Style

    @property
    def right(self) -> float:
        """Where the line ends."""
        return self.x + text_width(self.text, self.style)


@dataclass(frozen=True)
class Row:
    """Lines that stay together: their texts by column, and whether a rule is drawn below them."""

    columns: tuple[tuple[float, tuple[str, ...], Style], ...]
    before: float
    height: float
    rule: bool = False
    with_next: bool = False


@dataclass(frozen=True)
class Page:
    """What is on one page: lines of text, and the heights of the rules."""

    texts: tuple[Placed, ...]
    rules: tuple[float, ...]


@lru_cache(maxsize=20_000)
def text_width(text: str, style: Style) -> float:
    """Return the width of a text in points."""
    return float(text_to_path.get_text_width_height_descent(text, style.font(), ismath=False)[0])


def wrap(text: str, style: Style, width: float) -> list[str]:
    """Break a text into lines that are no wider than ``width`` points. A word that is wider is broken, too.

    >>> wrap("one two three", Style(size=10), 50)
    ['one two', 'three']
    """
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in filter(None, paragraph.split(" ")):
            for part in _pieces(word, style, width):
                longer = f"{line} {part}" if line else part
                if text_width(longer, style) <= width:
                    line = longer
                else:
                    lines.append(line)
                    line = (INDENT if style is CODE else "") + part
        lines.append(line)
    return lines


def _pieces(word: str, style: Style, width: float) -> Iterator[str]:
    """Break a word that is wider than a line."""
    room = width - text_width(INDENT, style) if style is CODE else width
    while text_width(word, style) > room:
        length = next(cut for cut in range(len(word) - 1, 0, -1) if text_width(word[:cut], style) <= room or cut == 1)
        yield word[:length]
        word = word[length:]
    yield word


def lay_out(blocks: Iterable[Block], footer: str) -> list[Page]:
    """Distribute blocks over pages.

    Args:
        blocks: What to show, in order.
        footer: The text at the foot of each page, before its number.

    Returns:
        The pages.
    """
    rows = [row for block in blocks for row in (_text_rows(block) if isinstance(block, Text) else _table_rows(block))]
    pages: list[tuple[list[Placed], list[float]]] = [([], [])]
    y = HEIGHT - TOP
    for number, row in enumerate(rows):
        if pages[-1][0] and y - _needed(rows, number) < BOTTOM:
            pages.append(([], []))
            y = HEIGHT - TOP
        y -= row.before if pages[-1][0] else 0.0
        for x, lines, style in row.columns:
            pages[-1][0].extend(
                Placed(x, y - style.size - place * style.size * LEADING, line, style)
                for place, line in enumerate(lines)
                if line
            )
        y -= row.height
        if row.rule:
            pages[-1][1].append(y)
    return [_with_footer(Page(tuple(texts), tuple(rules)), footer, number + 1, len(pages))
            for number, (texts, rules) in enumerate(pages)]  # fmt: skip


def _needed(rows: Sequence[Row], number: int) -> float:
    """Return the height of a row and of those that must be on its page."""
    height = 0.0
    for row in rows[number:]:
        height += row.before + row.height
        if not row.with_next:
            break
    return height


def _text_rows(block: Text) -> Iterator[Row]:
    """One row for a short text, which stays on one page; one row per line for a long one."""
    style, before = block.style, block.style.before
    lines = wrap(block.text, style, COLUMN)
    together = len(lines) if len(lines) <= KEPT_TOGETHER else 1
    for start in range(0, len(lines), together):
        part = tuple(lines[start : start + together])
        yield Row(((LEFT, part, style),), before, len(part) * style.size * LEADING, with_next=block.with_next)
        before = 0.0


def _table_rows(table: Table) -> Iterator[Row]:
    widths = [COLUMN * share / sum(table.shares) for share in table.shares]
    starts = [LEFT + sum(widths[:column]) for column in range(len(widths))]
    for number, cells in enumerate((table.header, *table.rows)):
        columns = []
        for column, cell in enumerate(cells):
            style = HEAD_CELL if number == 0 else table.style(column)
            columns.append((starts[column], tuple(wrap(cell, style, widths[column] - GAP)), style))
        height = max(len(lines) * style.size * LEADING for _, lines, style in columns)
        yield Row(tuple(columns), 6.0 if number == 0 else 2.5, height + 2, rule=True, with_next=number == 0)


def _with_footer(page: Page, footer: str, number: int, count: int) -> Page:
    text = f"page {number} of {count}"
    placed = (
        Placed(LEFT, BOTTOM / 2, wrap(footer, NOTE, COLUMN * 0.8)[0], NOTE),
        Placed(LEFT + COLUMN - text_width(text, NOTE), BOTTOM / 2, text, NOTE),
    )
    return replace(page, texts=page.texts + placed)


def draw_page(page: Page) -> Figure:
    """Draw a page as a matplotlib figure."""
    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
    for entry in page.texts:
        figure.text(
            entry.x / WIDTH,
            entry.y / HEIGHT,
            entry.text,
            fontproperties=entry.style.font(),
            color=entry.style.colour,
            parse_math=False,
        )
    for y in page.rules:
        ends = [LEFT / WIDTH, (LEFT + COLUMN) / WIDTH]
        figure.add_artist(Line2D(ends, [y / HEIGHT] * 2, color="#bbbbbb", linewidth=0.5))
    return figure


def write_pdf(path: Path, pages: Sequence[Page], title: str) -> None:
    """Write pages as a PDF file, whose text can be searched and copied."""

    def write(temporary: Path) -> None:
        facts = {"Title": title, "Creator": "steadynet", "CreationDate": None}
        with matplotlib.rc_context({"pdf.fonttype": 42}), PdfPages(temporary, metadata=facts) as file:
            for page in pages:
                file.savefig(draw_page(page))

    write_atomically(path, write)
