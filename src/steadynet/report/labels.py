"""Where the labels of points are written, so that no label covers another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """A rectangle: the place of a label or of a marker."""

    left: float
    bottom: float
    width: float
    height: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two rectangles have a point in common.

        >>> Box(0, 0, 2, 1).overlaps(Box(1, 0, 2, 1)), Box(0, 0, 2, 1).overlaps(Box(2, 0, 2, 1))
        (True, False)
        """
        return (
            self.left < other.left + other.width
            and other.left < self.left + self.width
            and self.bottom < other.bottom + other.height
            and other.bottom < self.bottom + self.height
        )

    def holds(self, other: Box) -> bool:
        """Whether the other rectangle lies inside of this one."""
        return (
            self.left <= other.left
            and self.bottom <= other.bottom
            and other.left + other.width <= self.left + self.width
            and other.bottom + other.height <= self.bottom + self.height
        )


DISTANCES = (
    0.0,
    8.0,
    18.0,
    *(float(distance) for distance in range(30, 300, 15)),
)  # between a label and its point, beyond the nearest place
DIRECTIONS = 16


def places_around(width: float, height: float, gap: float) -> list[tuple[float, float]]:
    """Where a label can stand around its point, as the position of its lower left corner, the nearest places first.

    Args:
        width: The width of the label.
        height: Its height.
        gap: The smallest distance between the label and the point.

    >>> places_around(20, 8, 5)[0]
    (5.0, -4.0)
    """
    places = []
    for distance in DISTANCES:
        for turn in _turns():
            across, up = math.cos(turn), math.sin(turn)
            # the middle of the label, such that its nearest edge has the wanted distance from the point
            right = across * (gap + distance + width / 2)
            above = up * (gap + distance + height / 2)
            places.append((round(right - width / 2, 3), round(above - height / 2, 3)))
    return places


def _turns() -> list[float]:
    """The directions: first to the right, then to the left, above and below, then those in between."""
    order = sorted(range(DIRECTIONS), key=lambda number: (number % 4 != 0, number % 2 != 0, number % 8 != 0, number))
    return [2 * math.pi * number / DIRECTIONS for number in order]


def choose_places(labels: Iterable[Sequence[Box]], taken: Iterable[Box] = ()) -> list[int]:
    """Choose a place for each label.

    Args:
        labels: For each label the places that it can have, the preferred one first.
        taken: Where no label may be.

    Returns:
        For each label the number of the first place that is free, or 0 if none is.

    >>> choose_places([[Box(0, 0, 2, 1)], [Box(1, 0, 2, 1), Box(1, 1, 2, 1)]])
    [0, 1]
    """
    filled = list(taken)
    chosen = []
    for places in labels:
        free = [number for number, place in enumerate(places) if not any(place.overlaps(other) for other in filled)]
        chosen.append(free[0] if free else 0)
        filled.append(places[chosen[-1]])
    return chosen


@dataclass(frozen=True)
class LabelledPoint:
    """A point of a drawing, and the width of its label."""

    x: float
    y: float
    width: float


def place_labels(
    points: Sequence[LabelledPoint], height: float, half: float, area: Box, taken: Iterable[Box] = ()
) -> list[tuple[float, float]]:
    """Place the labels of many points, as near to each as there is room.

    Args:
        points: The points. The first ones get the nearest places.
        height: The height of a label.
        half: Half the size of a marker.
        area: Where labels may be.
        taken: Where no label may be, beside the markers.

    Returns:
        For each label the position of its lower left corner, relative to its point.

    >>> place_labels([LabelledPoint(50, 50, 20), LabelledPoint(50, 50, 20)], 8, 3, Box(0, 0, 100, 100))
    [(5.0, -4.0), (-25.0, -4.0)]
    """
    around, places = [], []
    for point in points:
        offsets = places_around(point.width, height, half + 2)
        boxes = [Box(point.x + right, point.y + up, point.width, height) for right, up in offsets]
        inside = [number for number, box in enumerate(boxes) if area.holds(box)] or [0]
        around.append([offsets[number] for number in inside])
        places.append([boxes[number] for number in inside])
    markers = [Box(point.x - half, point.y - half, 2 * half, 2 * half) for point in points]
    chosen = choose_places(places, [*markers, *taken])
    return [offsets[number] for offsets, number in zip(around, chosen, strict=True)]
