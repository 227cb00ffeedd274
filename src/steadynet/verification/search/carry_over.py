"""What the search of a property leaves for the same property in another box around the same image.

Bounds of inner neurons hold in every smaller box, too. In a larger box they do not, but the subproblems that a proof
consists of are a good start there: together they are everything, and most of them are proved at once, or nearly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import CondensedNetwork
from steadynet.graph.operations import Interval
from steadynet.verification.search.condensed_part import Part
from steadynet.verification.search.earlier_leaves import EarlierProof

MOST_BYTES = 16 << 20  # that the subproblems of one property may take


class Neurons(NamedTuple):
    """Where the neurons of a condensed network are in the whole one: some elements of the layer at a position."""

    position: int
    elements: Tensor


@dataclass(frozen=True)
class PartGroup:
    """Subproblems of one margin, and what the numbers of their neurons mean."""

    layers: tuple[Neurons, ...]
    parts: tuple[Part, ...]

    def translated(self, network: CondensedNetwork) -> tuple[list[Part], PartGroup]:
        """The same subproblems on the condensed network of another box, and those that are empty in it.

        A split of a ReLU whose sign is known in the box is left out. If the split holds it on the other side, the
        subproblem is empty: at most it holds points of its edge, which belong to the subproblem across the edge, too.
        """
        place, sign = _places(self.layers, network)
        known, numbers, signs = place >= 0, place.tolist(), sign.tolist()
        fresh = network.lines.lower_slope[:, 0].half()
        kept, empty = list[Part](), list[Part]()
        for part in self.parts:
            sides = zip(part.neurons, part.signs, strict=True)
            (empty if any(signs[neuron] == -side for neuron, side in sides) else kept).append(part)
        own = [row for row, part in enumerate(kept) if len(part.slopes)]
        slopes = fresh.repeat(len(kept), 1)  # one row per part
        if own:
            slopes[torch.tensor(own)[:, None], place[known]] = torch.stack([kept[row].slopes for row in own])[:, known]
        found = []
        for row, part in enumerate(kept):
            pairs = zip(part.neurons, part.signs, part.betas, strict=True)
            left = [(numbers[neuron], side, beta) for neuron, side, beta in pairs if numbers[neuron] >= 0]
            neurons, held, betas = zip(*left, strict=True) if left else ((), (), ())
            found.append(Part(part.margin, -torch.inf, neurons, held, betas, slopes[row]))
        return found, PartGroup(self.layers, tuple(empty))


def _places(layers: Sequence[Neurons], network: CondensedNetwork) -> tuple[Tensor, Tensor]:
    """For each neuron of some layers, its number in a condensed network or −1, and its sign there if that is known."""
    ours = {layer.position: layer for layer in network.layers}
    nothing = torch.zeros(0, dtype=torch.long, device=network.margins.device)  # all ReLUs of a network may be stable
    places, signs = [nothing], [nothing]
    for position, elements in layers:
        bounds = network.whole.bounds[position]
        lower, upper = bounds.lower.flatten()[elements], bounds.upper.flatten()[elements]
        sign = torch.where(lower >= 0, 1, torch.where(upper <= 0, -1, 0))
        place = torch.full((bounds.lower.numel(),), -1, device=elements.device)
        if position in ours:
            rows = ours[position].rows
            place[ours[position].elements] = torch.arange(rows.start, rows.stop, device=elements.device)
        places.append(place[elements])
        signs.append(sign)
    return torch.cat(places), torch.cat(signs)


@dataclass
class CarryOver:
    """What is known of one property from searches in other boxes. It must never meet another network or label.

    Or else it holds the proof of the same property of another network. Then it takes nothing from a search.

    Attributes:
        bounds: bounds of the inputs of ReLUs and maxima, by position, (1, *shape) each.
        bounds_hold_in: the box in which they hold.
        parts: per margin, subproblems that together are the whole margin, whatever the box is.
        earlier: reads the proof of another network, once its ReLU layers are known; None if there is none.
        is_rest: whether ``parts`` are what a search in the same box left open, all other parts being proved.
    """

    bounds: dict[int, Interval] = field(default_factory=dict)
    bounds_hold_in: Interval | None = None
    parts: dict[int, tuple[PartGroup, ...]] = field(default_factory=dict)
    earlier: Callable[[BoundedNetwork], EarlierProof | None] | None = None
    is_rest: bool = False

    def earlier_proof(self, network: BoundedNetwork) -> EarlierProof | None:
        """The proof of another network, read now; None if there is none that fits."""
        return None if self.earlier is None else self.earlier(network)

    def go_on_with(self, network: CondensedNetwork, parts: Sequence[Part]) -> None:
        """Keep the parts that a search left open, for the next search in the same box."""
        layers = tuple(Neurons(layer.position, layer.elements) for layer in network.layers)
        margins = {part.margin for part in parts}
        self.is_rest = True
        self.parts = {
            margin: (PartGroup(layers, tuple(part for part in parts if part.margin == margin)),) for margin in margins
        }

    def known_in(self, box: Interval) -> dict[int, Interval]:
        """The bounds that hold in a box; none if they are of a box that does not contain it."""
        return self.bounds if is_inside(box, self.bounds_hold_in) else {}

    def start(self, margin: int, network: CondensedNetwork) -> tuple[list[Part], tuple[PartGroup, ...]] | None:
        """The subproblems to begin a margin with, and those that are empty in this box; None if there are none."""
        if margin not in self.parts:
            return None
        translated = [group.translated(network) for group in self.parts[margin]]
        return [part for parts, _ in translated for part in parts], tuple(empty for _, empty in translated)

    def keep_bounds(self, network: BoundedNetwork, index: int) -> None:
        """Keep the bounds of one property's inner neurons, for smaller boxes. The first ones of a box are kept."""
        box, held = box_of(network.box, index), self.bounds_hold_in
        same = held is not None and is_inside(box, held) and is_inside(held, box)
        if self.earlier is not None or same:
            return
        self.bounds = {position: box_of(known, index) for position, known in network.bounds.items()}
        self.bounds_hold_in = box

    def keep_proof(
        self, network: CondensedNetwork, parts: Sequence[Part], empty: Mapping[int, tuple[PartGroup, ...]]
    ) -> None:
        """Keep the subproblems of a proof, for larger boxes: those proved, and those that were empty from the start."""
        if self.earlier is not None or len(parts) * (2 * network.neurons + 512) > MOST_BYTES:
            return
        layers = tuple(Neurons(layer.position, layer.elements) for layer in network.layers)
        for margin in {part.margin for part in parts} | empty.keys():
            proved = PartGroup(layers, tuple(part for part in parts if part.margin == margin))
            self.parts[margin] = tuple(group for group in (proved, *empty.get(margin, ())) if group.parts)


def is_inside(inner: Interval, outer: Interval | None) -> bool:
    """Whether a box lies in another one, edges included."""
    return outer is not None and bool((inner.lower >= outer.lower).all() and (inner.upper <= outer.upper).all())


def box_of(boxes: Interval, index: int) -> Interval:
    """One row of intervals, (1, *shape)."""
    return Interval(boxes.lower[index : index + 1], boxes.upper[index : index + 1])


def joined_bounds(known: Sequence[Mapping[int, Interval]]) -> dict[int, Interval] | None:
    """Bounds of several properties as one batch, infinite where a property has none; None if no property has any."""
    some = next((bounds for bounds in known if bounds), None)
    if some is None:
        return None
    nothing = {
        position: Interval(torch.full_like(one.lower, -torch.inf), torch.full_like(one.upper, torch.inf))
        for position, one in some.items()
    }
    rows = [bounds or nothing for bounds in known]
    return {
        position: Interval(*(torch.cat(sides) for sides in zip(*(bounds[position] for bounds in rows), strict=True)))
        for position in some
    }
