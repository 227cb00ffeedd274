"""The little of SVG that the figures need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
INK, GREY, LIGHT = "#1f2937", "#6b7280", "#e5e7eb"
BLUE, ORANGE, GREEN, RED = "#2563eb", "#d97706", "#15803d", "#b91c1c"
Point = tuple[float, float]


class Drawing:
    """Shapes on white, in pixels; ``save`` writes them beside this file."""

    def __init__(self, width: int, height: int, label: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(label)}" font-family="Helvetica, Arial, sans-serif" font-size="17" fill="{INK}">',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
        ]

    def text(self, at: Point, words: str, *, anchor: str = "start", bold: bool = False, colour: str = INK) -> None:
        """Words whose baseline begins (or has its middle, or ends) here."""
        weight = ' font-weight="bold"' if bold else ""
        x, y = at
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(words)}</text>'
        )

    def line(self, points: Sequence[Point], colour: str, width: float = 1.5, *, dashed: bool = False) -> None:
        """A line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="7 5"' if dashed else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>')

    def segments(self, pieces: Iterable[tuple[Point, Point]], colour: str, width: float) -> None:
        """Many short lines as one path."""
        path = "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for (a, b), (c, d) in pieces)
        self.parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def box(self, corner: Point, size: Point, *, fill: str = "none", stroke: str = "none", width: float = 1.5) -> None:
        """A rectangle by its upper left corner."""
        (x, y), (w, h) = corner, size
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="{width}"/>'
        )

    def dot(self, at: Point, radius: float, colour: str) -> None:
        """A disc."""
        self.parts.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius}" fill="{colour}"/>')

    def save(self, name: str) -> None:
        """Write the file."""
        (HERE / name).write_text("\n".join([*self.parts, "</svg>\n"]), encoding="utf-8")
