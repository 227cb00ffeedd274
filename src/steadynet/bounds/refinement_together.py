"""Tighter bounds of unstable ReLUs of several properties, by passes over the whole network with known slopes.

Any slope gives a valid bound. A pass over few functions takes hardly less time than one over some more, so for proofs
with few leaves this is cheaper than one condensed network per property (:mod:`refinement_by_slopes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.crown import functions_at_once
from steadynet.bounds.linear_functions import LinearFunctions, single_neurons
from steadynet.bounds.queries import BoundQuery
from steadynet.bounds.refinement_by_slopes import NumberedNeurons
from steadynet.bounds.relaxation import Relaxation, Slopes
from steadynet.bounds.thinning import thinned_with_places
from steadynet.graph.operations import Interval

AT_ONCE = 1024  # bounds: each has slopes of its own
NoteOfProperty = Callable[[int, int, Tensor, Tensor], None]  # (property, layer, bounds, slopes), as NoteSlopes


@dataclass(frozen=True)
class KnownSlopes:
    """The slopes behind refined bounds of one property.

    Attributes:
        layers: the neurons that they speak of, one entry per ReLU layer.
        slopes: per position of a refined layer, (2, its neurons, neurons before it): for lower and upper bounds.
    """

    layers: Sequence[NumberedNeurons]
    slopes: Mapping[int, Tensor]


@dataclass(frozen=True)
class _Piece:
    """Some bounds of one layer of a property: which ones (n,), and the slopes for them (n, neurons before)."""

    owner: int
    layers: Sequence[NumberedNeurons]
    columns: Tensor
    slopes: Tensor

    def neurons(self) -> tuple[Tensor, Tensor]:
        """(n,), the neuron of each bound in the last one of the layers, and 1 for lower bounds or −1 for upper ones."""
        elements = self.layers[-1].elements
        return elements[self.columns % len(elements)], 1 - 2 * (self.columns // len(elements))


def refined_together(
    network: BoundedNetwork,
    known: Mapping[int, KnownSlopes],
    memory: int,
    note: NoteOfProperty = lambda owner, number, bounds, slopes: None,
) -> BoundedNetwork:
    """The network over several boxes with bounds from these slopes, where they are tighter than the ones so far.

    Args:
        network: the network over the boxes of the properties.
        known: slopes, by property.
        memory: bytes that a backward pass may take.
        note: is told the slopes that were used: the property, the layer's number, which bounds they are (first the
            lower bounds of all its neurons, then the upper ones), and the slopes (neurons before, n).
    """
    owners = torch.tensor(list(known), dtype=torch.long, device=network.box.lower.device)
    part, each = network.of_properties(owners), list(known.values())
    bounds = dict(network.bounds)
    for number, position in enumerate(network.graph.relus):
        at_once = min(AT_ONCE, functions_at_once(network, network.graph.source(position), memory))
        batches, room = [list[_Piece]()], at_once
        for row, slopes in enumerate(each):
            for piece in _pieces(part, row, slopes, number, at_once) if position in slopes.slopes else ():
                if len(piece.columns) > room:
                    batches, room = [*batches, []], at_once
                batches[-1].append(piece)
                room -= len(piece.columns)
        if not batches[0]:
            continue
        sides = tuple(side.clone() for side in part.bounds[position])
        for pieces in batches:
            for piece in pieces:
                note(int(owners[piece.owner]), number, piece.columns, piece.slopes.t())
            _refine(part, position, pieces, *sides)
        better = Interval(sides[0], torch.maximum(*sides))
        part = replace(part, bounds={**part.bounds, position: better})
        bounds[position] = Interval(
            *(side.index_copy(0, owners, new) for side, new in zip(bounds[position], better, strict=True))
        )
    return replace(network, bounds=bounds)


def _pieces(network: BoundedNetwork, owner: int, known: KnownSlopes, number: int, at_once: int) -> Iterator[_Piece]:
    """Both bounds of the neurons of a layer that are unstable; the others need no better ones."""
    layer, layers = known.layers[number], known.layers[: number + 1]
    unstable = network.bounds[layer.position].of(slice(owner, owner + 1)).unstable().flatten()
    row, count = unstable[layer.elements].nonzero().flatten(), len(layer.elements)
    for columns in torch.cat([row, row + count]).split(at_once) if len(row) else ():
        slopes = known.slopes[layer.position][columns // count, columns % count]
        yield _Piece(owner, layers, columns, slopes.to(network.box.lower))


def _refine(network: BoundedNetwork, position: int, pieces: Sequence[_Piece], lower: Tensor, upper: Tensor) -> None:
    """Make the bounds of a layer's inputs as tight as these slopes do, in place."""
    source = network.graph.source(position)
    shape, dtype = network.shapes[source], lower.dtype
    neuron, sign = (torch.cat(parts) for parts in zip(*(piece.neurons() for piece in pieces), strict=True))
    owners = torch.cat([torch.full_like(piece.columns, piece.owner) for piece in pieces])
    axes = torch.ones(shape, dtype=torch.bool, device=neuron.device).nonzero()[neuron]
    chosen = torch.cat([owners[:, None], axes], 1)
    functions, owner = single_neurons(chosen, shape, dtype, sign)
    before = {place: known for place, known in network.bounds.items() if place < position}
    with torch.no_grad():
        smaller, places = thinned_with_places(replace(network, bounds=before))
        slopes = GivenSlopes.of(network, pieces).thinned(smaller, places)
        found = smaller.relaxed(source).lower(BoundQuery(source, functions, owner, slopes)).bound(dtype)
    for side, wanted in ((lower, sign > 0), (upper, sign < 0)):
        index = tuple(chosen[wanted].t())
        if side is lower:
            side[index] = torch.maximum(side[index], found[wanted])
        else:  # an upper bound of z is −(a lower bound of −z)
            side[index] = torch.minimum(side[index], -found[wanted])


class GivenSlopes(Slopes):
    """Lower slopes of named neurons, one row per function; other neurons have those of the relaxation.

    Whatever they are, a pass with them gives valid bounds: a ReLU whose sign is known has the slope of its relaxation,
    and the slope of another one is pulled into its range.

    Args:
        numbers: per position, (properties, \\*shape): the column of each neuron's slope; 0 where it is not named.
        rows: per position, (n, 1 + most named neurons of a property): the slopes. Column 0 is not used.
    """

    def __init__(self, numbers: Mapping[int, Tensor], rows: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.numbers, self.rows = numbers, rows

    @classmethod
    def of(cls, network: BoundedNetwork, pieces: Sequence[_Piece]) -> GivenSlopes:
        """The slopes of several properties."""
        numbers, rows = dict[int, Tensor](), dict[int, Tensor]()
        for layers in zip(*(piece.layers[:-1] for piece in pieces), strict=True):
            position, most = layers[0].position, max(len(layer.elements) for layer in layers)
            numbers[position] = torch.zeros_like(network.bounds[position].lower)
            parts = []
            for piece, layer in zip(pieces, layers, strict=True):
                count = len(layer.elements)
                here = torch.arange(1, 1 + count, device=layer.elements.device).to(numbers[position])
                numbers[position][piece.owner].view(-1)[layer.elements] = here
                parts.append(torch.nn.functional.pad(piece.slopes[:, layer.rows], (1, most - count)))
            rows[position] = torch.cat(parts)
        return cls(numbers, rows)

    def thinned(self, smaller: BoundedNetwork, places: Mapping[int, Tensor]) -> GivenSlopes:
        """The same for a network without the ReLUs that are never active (:func:`thinned_with_places`)."""
        numbers = dict(self.numbers)
        for position in numbers.keys() & places.keys():
            kept = numbers[position].flatten(1)[:, places[position] >= 0]
            numbers[position] = kept.view(len(kept), *smaller.shapes[position])
        return GivenSlopes(numbers, self.rows)

    def at(self, position: int, functions: LinearFunctions, owner: Tensor | None, relaxation: Relaxation) -> Tensor:
        """The slopes of one ReLU layer, as the functions see it."""
        fixed = functions.gather(relaxation.lower_slope, owner).expand_as(functions.coefficients)
        if position not in self.numbers:
            return fixed
        seen = functions.gather(self.numbers[position], owner).expand_as(fixed).long()
        unstable = (functions.gather(relaxation.upper_shift, owner) > 0) & (seen > 0)
        found = self.rows[position].gather(1, seen.flatten(1)).view_as(fixed).clamp(relaxation.slope, 1.0)
        return torch.where(unstable, found, fixed)
