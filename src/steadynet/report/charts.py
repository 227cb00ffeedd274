"""What a figure is, before it is drawn: panels of series. Drawn twice: for print, and to be touched on the page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["lines", "bars", "points", "steps"]

# Okabe and Ito's colours, told apart by colour-blind people; yellow is left out, which vanishes on paper.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"


@dataclass(frozen=True)
class Style:
    """How a series looks: three ways to tell it from others besides its name."""

    colour: str
    marker: str  # of matplotlib
    hatch: str
    dashed: bool = False


_KNOWN = {
    "nbc": Style(VERMILION, "o", ""),
    "trades": Style(BLUE, "s", "//"),
    "madry": Style(GREEN, "^", "\\\\"),
    "rs": Style(PURPLE, "D", "xx"),
    "natural": Style(BLACK, "v", ".."),
    "sabr": Style(SKY, "P", "++"),
    "ibp": Style(ORANGE, "X", "--"),
    "crown-ibp": Style(GREY, "<", "oo"),
    "mtl-ibp": Style(GREY, ">", "**"),
}
_OTHERS = (
    Style(BLUE, "s", "//"),
    Style(ORANGE, "X", "--"),
    Style(GREEN, "^", "\\\\"),
    Style(PURPLE, "D", "xx"),
    Style(SKY, "P", "++"),
    Style(GREY, "<", "oo"),
)


def styles(names: list[str]) -> dict[str, Style]:
    """A style a name: methods look the same in every figure, joined with nbc dashed, others take what is left.

    >>> styles(["nbc", "trades+nbc"])["trades+nbc"].dashed
    True
    """
    result, others = {}, iter(_OTHERS * (1 + len(names) // len(_OTHERS)))
    for name in dict.fromkeys(names):
        base, _, rest = name.partition("+")
        known = _KNOWN.get(base.partition("@")[0])
        style = known or next(others)
        dashed = bool(rest) or "@1-2" in name
        result[name] = Style(style.colour, style.marker, style.hatch, dashed)
    return result


@dataclass(frozen=True)
class Series:
    """A row of points: ``x`` are numbers, or names for bars; None in ``y`` is a gap. ``faint`` is the paper's."""

    name: str
    x: list[float] | list[str]
    y: list[float | None]
    style: Style
    hover: list[str] = field(default_factory=list)
    faint: bool = False
    labels: list[str] = field(default_factory=list)  # written beside points


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    kind: Kind
    series: list[Series]
    log_x: bool = False
    log_y: bool = False
    percent: bool = False  # y from 0 to 100
    names: dict[float, str] = field(default_factory=dict)  # how numbers on the x axis are written


@dataclass(frozen=True)
class Chart:
    """One figure: ``name`` is its file's, ``note`` says how it is to be read."""

    name: str
    title: str
    panels: list[Panel]
    note: str = ""
    across: int = 3  # panels in a row, in print
