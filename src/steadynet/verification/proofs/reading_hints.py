"""The hints of a search in the terms of a proof: kept ReLUs instead of positions in a graph of operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from steadynet.verification.proofs.trees import Held, Hint
from steadynet.verification.search.hints import LeafHint, ProofHints

Array = NDArray[np.float64]


class MarginHints:
    """What a search left of one margin.

    Attributes:
        leaves: its leaves, with their ReLUs among those that the proof keeps.
        cuts: the boxes that were halved.
    """

    def __init__(
        self, hints: ProofHints | None, margin: int, kept: Sequence[NDArray[np.int64]], sizes: Sequence[int]
    ) -> None:
        self.leaves: list[Hint] = []
        self.cuts: list[tuple[Array, int, float]] = []
        if hints is None:
            return
        self.places, self.total = _places(hints, kept, sizes), sum(map(len, kept))
        if self.places is not None:
            found = (self._hint(leaf) for leaf in hints.leaves.get(margin, []))
            self.leaves = [hint for hint in found if hint is not None]
        if not self.leaves:
            self.cuts = [
                ((cut.lower.double().numpy() + cut.upper.double().numpy()) / 2, cut.axis, cut.middle)
                for cut in hints.cuts
            ]

    def _hint(self, leaf: LeafHint) -> Hint | None:
        """One leaf; splits of ReLUs that are not kept are left out. (They are stable, or not the network's own.)"""
        assert self.places is not None
        held: Held = {}
        for position, element, sign, beta, _ in leaf.splits:
            place = self.places.get(position)
            if place is not None and place[element] >= 0:
                held[int(place[element])] = (sign, max(beta, 0.0) if np.isfinite(beta) else 0.0)
        slopes = np.zeros(self.total)
        for position, (elements, values) in leaf.slopes.items():
            place = self.places.get(position)
            if place is not None:
                where = place if elements is None else place[elements.numpy()]
                slopes[where[where >= 0]] = values.double().numpy()[where >= 0]
        return Hint(held, np.clip(np.nan_to_num(slopes), 0, 1) if leaf.slopes else None)


def _places(
    hints: ProofHints, kept: Sequence[NDArray[np.int64]], sizes: Sequence[int]
) -> dict[int, NDArray[np.int64]] | None:
    """Per position of a ReLU layer, the number among all kept ReLUs of each of its elements; −1 for the others.

    A VNN-LIB property appends ReLUs of its own, which come last. None if the graph has fewer ReLUs than the network.
    """
    if len(hints.relus) < len(kept):
        return None
    result, first = {}, 0
    for position, elements, size in zip(hints.relus, kept, sizes, strict=False):
        place = np.full(size, -1)
        place[elements] = first + np.arange(len(elements))
        first += len(elements)
        result[position] = place
    return result


def refined_slopes(hints: ProofHints, kept: Sequence[NDArray[np.int64]], sizes: Sequence[int]) -> list[Array | None]:
    """The slopes behind refined inner bounds, per ReLU layer: (2, kept, kept before), or None."""
    result: list[Array | None] = [None] * len(kept)
    places = _places(hints, kept, sizes)
    if places is None:
        return result
    order = {position: number for number, position in enumerate(hints.relus)}
    for position, known in hints.refined.items():
        refined, number = known.layer, order.get(position, len(kept))
        if number >= len(kept):
            continue
        first = sum(map(len, kept[:number]))
        before = np.concatenate([places[other.position][other.elements.numpy()] for other in known.before])
        own = places[position][refined.elements.numpy()]
        slopes = np.zeros((2, len(kept[number]), first))
        for bounds, columns in known.notes:
            side, neuron = np.divmod(bounds.numpy(), len(own))
            values = np.clip(np.nan_to_num(columns.double().numpy()), 0, 1)  # (neurons before, bounds)
            used = own[neuron] >= 0
            target = own[neuron][used] - first
            for column, at in zip(np.flatnonzero(used), zip(side[used], target, strict=True), strict=True):
                slopes[at][before[before >= 0]] = values[before >= 0, column]
        result[number] = slopes
    return result
