"""Where the labels of points are written, so that no label covers another."""

from __future__ import annotations

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
