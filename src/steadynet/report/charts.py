"""The records of a figure: panels of series.

They are drawn twice: ``drawing`` draws them for print, ``interactive`` for the page. What both drawings have in common
is decided here: colours, dashes, and the range of the y axis.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from steadynet.experiments.variants import Variant


class Kind(Enum):
    """How the series of a panel are drawn."""

    LINES = "lines"
    BARS = "bars"
    STACKED = "stacked"  # bars on top of each other, with their labels in them
    POINTS = "points"
    STEPS = "steps"
    SHADED = "shaded"  # labelled points whose colour is a number; a series without such numbers is a line


class Dash(Enum):
    """How a line is drawn."""

    SOLID = "solid"
    DASHED = "dashed"
    DOTTED = "dotted"


# The colours of Okabe and Ito, which colour-blind people can tell apart. Their yellow is left out: it is too pale.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"
LIGHT_GREY = "#C4C8CC"
SHADES = (
    "#C8E020",
    "#5DC863",
    "#21908D",
    "#3B528B",
    "#440154",
)  # from low to high, distinct for colour-blind people, too
MANY_LABELS = 12  # methods: with more of them, a figure needs the whole width, or cannot be read
NO_SHADE = "#FFFFFF"  # of a point without a number


@dataclass(frozen=True)
class Style:
    """How a series looks. Colour, marker and hatch each tell it from the others."""

    colour: str
    marker: str  # as matplotlib names it; empty for no marker
    hatch: str  # as matplotlib names it
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


def styles(variants: Iterable[Variant]) -> dict[str, Style]:
    """Choose a style for each variant, by its label.

    A known method looks the same in every figure, unless there are several variants of it. A method joined with nbc has
    the method's own colour and is dashed; so is a variant in the window that costs least accuracy.

    >>> styles([Variant.plain("nbc"), Variant.plain("trades+nbc")])["trades+nbc"].dashed
    True
    """
    by_label = {variant.label: variant for variant in variants}
    alike = Counter((variant.method, variant.window) for variant in by_label.values())
    windows = {variant.window.high for variant in by_label.values() if variant.window}
    result, others = {}, iter(_OTHERS * (1 + len(by_label) // len(_OTHERS)))
    for label, variant in by_label.items():
        base, _, joined = variant.method.partition("+")
        known = _KNOWN.get(base) if alike[variant.method, variant.window] == 1 else None
        near = variant.window is not None and len(windows) > 1 and variant.window.high == min(windows)
        result[label] = replace(known or next(others), dashed=bool(joined) or near)
    return result


@dataclass(frozen=True)
class Series:
    """The points of one line, or the bars of one colour.

    ``x`` holds numbers, or names for bars. A None in ``y`` is a gap. The paper's series are ``faint``.
    """

    name: str
    x: Sequence[float | str]
    y: list[float | None]
    style: Style
    hover: list[str] = field(default_factory=list)  # the texts shown when the mouse is over a point
    faint: bool = False
    labels: list[str] = field(default_factory=list)  # the texts written beside the points
    in_legend: bool = True
    shades: list[float | None] = field(default_factory=list)  # the number behind each point's colour
    strong: bool = False  # its shaded points are drawn with a strong outline, and their labels are bold

    @property
    def has_values(self) -> bool:
        """Whether there is anything to draw."""
        return any(value is not None for value in self.y)

    @property
    def dash(self) -> Dash:
        """How its line is drawn."""
        return Dash.DOTTED if self.faint else Dash.DASHED if self.style.dashed else Dash.SOLID

    @property
    def is_open(self) -> bool:
        """Whether its markers are drawn as outlines."""
        return self.faint or self.style.dashed

    @property
    def opacity(self) -> float:
        """How opaque it is drawn, from 0 to 1."""
        return 0.65 if self.faint else 1.0


@dataclass(frozen=True)
class ShadeScale:
    """What the colours of shaded points mean: numbers from ``low`` to ``high``, on a logarithmic scale."""

    label: str
    low: float
    high: float

    def position(self, value: float) -> float:
        """Where a number lies on the scale, from 0 for ``low`` to 1 for ``high``.

        >>> scale = ShadeScale("seconds", 0.01, 1.0)
        >>> [round(scale.position(value), 3) for value in (0.001, 0.1, 1.0)]
        [0.0, 0.5, 1.0]
        """
        low, high = math.log10(self.low), math.log10(self.high)
        place = (math.log10(max(value, self.low)) - low) / (high - low) if high > low else 0.0
        return min(max(place, 0.0), 1.0)

    def colour(self, value: float | None) -> str:
        """The colour of a number: between those of ``SHADES``, or ``NO_SHADE`` for None.

        >>> scale = ShadeScale("seconds", 0.01, 1.0)
        >>> scale.colour(0.01), scale.colour(0.1), scale.colour(None)
        ('#c8e020', '#21908d', '#FFFFFF')
        """
        if value is None:
            return NO_SHADE
        number, share = divmod(self.position(value) * (len(SHADES) - 1), 1.0)
        pair = SHADES[int(number)], SHADES[min(int(number) + 1, len(SHADES) - 1)]
        low, high = ([int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in pair)
        mixed = (round((1 - share) * one + share * other) for one, other in zip(low, high, strict=True))
        return "#" + "".join(f"{part:02x}" for part in mixed)

    @property
    def ticks(self) -> list[float]:
        """The numbers to mark on the scale."""
        return list(log_ticks(self.low, self.high))


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    kind: Kind
    series: list[Series]
    log_x: bool = False
    percent: bool = False  # the y axis runs from 0 to 100
    tick_names: dict[float, str] = field(default_factory=dict)  # the texts of the ticks on the x axis, by value
    y_tick_names: dict[float, str] = field(default_factory=dict)  # the same for the y axis
    shading: ShadeScale | None = None  # for shaded points

    @property
    def is_wide(self) -> bool:
        """Whether it has so many labels that it needs the whole width of the page."""
        if self.kind is Kind.STACKED:
            return any(len(series.x) > MANY_LABELS for series in self.series)
        return self.kind is Kind.SHADED and sum(len(series.labels) for series in self.series) > MANY_LABELS

    @property
    def is_comparison(self) -> bool:
        """Whether it has two points to compare. One point is said better by a table.

        >>> style = Style(GREY, "o", "")
        >>> series = [Series("a", [1.0], [2.0], style), Series("b", [1.0], [3.0], style)]
        >>> Panel("two dots above each other", "", "", Kind.LINES, series).is_comparison
        False
        """
        places = [[x for x, y in zip(series.x, series.y, strict=True) if y is not None] for series in self.series]
        if self.kind in (Kind.LINES, Kind.STEPS):  # at least one of the lines has a length
            return any(len(set(along)) > 1 for along in places)
        if self.kind is Kind.STACKED:
            return bool(self.series)  # one bar has parts to compare
        return sum(map(len, places)) > 1

    @property
    def x_range(self) -> tuple[float | None, float | None]:
        """The left and the right end of the x axis; None leaves an end to the program that draws."""
        is_scatter = self.kind in (Kind.POINTS, Kind.SHADED)
        values = [float(x) for series in self.series for x in series.x] if is_scatter else []
        if not values:
            return None, None
        share = 0.18 if self.kind is Kind.POINTS else 0.1
        margin = share * (max(values) - min(values)) or 0.5  # room for the labels
        return min(values) - margin, max(values) + margin

    @property
    def y_range(self) -> tuple[float | None, float | None]:
        """The lower and the upper end of the y axis; None leaves an end to the program that draws."""
        if self.percent:  # a margin, so that markers at 0 and 100 are drawn whole
            return (0.0 if self.kind in (Kind.BARS, Kind.STACKED) else -3.0), 103.0
        if self.kind in (Kind.BARS, Kind.STEPS):
            return 0.0, None
        values = [value for series in self.series for value in series.y if value is not None]
        if self.kind is Kind.POINTS and values:  # at least 10 points high: small differences stay small
            middle, half = (max(values) + min(values)) / 2, max(5.0, 0.65 * (max(values) - min(values)))
            return middle - half, middle + half
        if self.kind is Kind.SHADED and values:
            margin = 0.08 * (max(values) - min(values)) or 0.5
            return min(values) - margin, max(values) + margin
        return None, None


def log_ticks(low: float, high: float) -> dict[float, str]:
    """The ticks of a logarithmic axis, each with its whole number: powers of ten, on a short axis also 2 and 5 times.

    >>> list(log_ticks(0.004, 20.0).values()), list(log_ticks(0.03, 2.0).values())
    (['0.01', '0.1', '1', '10'], ['0.05', '0.1', '0.2', '0.5', '1', '2'])
    """
    digits = (1, 2, 5) if high / low < 100 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [digit * 10.0**power for power in powers for digit in digits]
    return {mark: f"{mark:g}" for mark in marks if low * 0.999 <= mark <= high * 1.001}


@dataclass(frozen=True)
class Chart:
    """One figure. ``name`` is the name of its file, ``note`` explains how to read it."""

    name: str
    heading: str  # what the figure shows
    subject: str  # the table or experiment that it is about
    panels: list[Panel]
    note: str = ""
    across: int = 3  # panels side by side, in print

    @property
    def title(self) -> str:
        """Heading and subject in one line."""
        return f"{self.heading}: {self.subject}"


def chart_of(
    name: str, heading: str, subject: str, panels: Sequence[Panel], note: str = "", across: int = 3
) -> Chart | None:
    """The chart of the panels that have something to compare, or None if no panel has."""
    drawn = [panel for panel in panels if panel.series and panel.is_comparison]
    stacks = [panel.series[0] for panel in drawn if panel.kind is Kind.STACKED]
    is_one_bar = len(drawn) == 1 and sum(value is not None for stack in stacks for value in stack.y) == 1
    return Chart(name, heading, subject, drawn, note, across) if drawn and not is_one_bar else None
