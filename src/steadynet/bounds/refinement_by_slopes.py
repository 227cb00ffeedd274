"""Tighter bounds of unstable ReLUs with slopes that are known already, such as those of another network's proof.

Any slope gives a valid bound, so one pass per layer over the condensed network is all that this takes: no ascent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import ChosenNeurons, CondensedLayer
from steadynet.bounds.condensed_proof import CondensedProof, tightened
from steadynet.bounds.condensed_refinement import NoteSlopes, no_note
from steadynet.graph.operations import Interval

COLUMNS_AT_ONCE = 512


@dataclass(frozen=True)
class NumberedNeurons:
    """Some neurons of a ReLU layer.

    Attributes:
        position: the ReLU's position in the network.
        shape: the shape of the whole layer.
        elements: (n,), the numbers of the neurons in the whole layer.
        rows: their numbers among the chosen neurons of all layers.
    """

    position: int
    shape: tuple[int, ...]
    elements: Tensor
    rows: slice


def refined_by_slopes(
    proof: CondensedProof,
    layers: Sequence[NumberedNeurons],
    slopes: Mapping[int, Tensor],
    out_of_time: Callable[[], bool] = lambda: False,
    note: NoteSlopes = no_note,
) -> BoundedNetwork:
    """The network over one box with bounds from these slopes, where they are tighter than the known ones.

    The condensed network of ``proof`` goes on with them, too.

    Args:
        proof: passes over the condensed network of one property.
        layers: the neurons that the slopes speak of, layer by layer.
        slopes: per position of a layer, (2, its neurons, neurons before it): for the lower and the upper bounds.
        out_of_time: when this says yes, the bounds that are still to come stay as they are.
        note: is told the slopes that were used, as :func:`refined_by_condensed` does.
    """
    whole, ours = proof.network.whole, {layer.position: layer for layer in proof.network.layers}
    for number, layer in enumerate(layers):
        if layer.position not in slopes or layer.position not in ours or out_of_time():
            continue
        known = whole.bounds[layer.position]
        bounds, here = tuple(side.clone().flatten() for side in known), ours[layer.position]
        place = places(here, layer)
        open_ones = place >= 0  # the others need no better bounds
        open_ones &= known.unstable().flatten()[layer.elements]
        unstable = open_ones.nonzero().flatten()
        both = torch.cat([unstable, unstable + len(layer.elements)])
        for columns in both.split(COLUMNS_AT_ONCE):
            side, row = columns // len(layer.elements), columns % len(layer.elements)
            chosen = slopes[layer.position][side, row].t().to(known.lower)  # (neurons before, columns)
            note(number, columns, chosen)
            own = _own_slopes(proof, here, layers[:number], chosen)
            sign = (1 - 2 * side).to(known.lower)
            with torch.no_grad():
                found = proof.neuron_bounds(here, place[row], sign, own)
            above, elements = side == 0, layer.elements[row]
            bounds[0][elements[above]] = torch.maximum(bounds[0][elements[above]], found[above])
            bounds[1][elements[~above]] = torch.minimum(bounds[1][elements[~above]], -found[~above])
        better = Interval(bounds[0].view_as(known.lower), torch.maximum(*bounds).view_as(known.upper))
        whole = replace(whole, bounds={**whole.bounds, layer.position: better})
        proof.network = tightened(proof.network, whole)
    return whole


def places(ours: CondensedLayer, layer: ChosenNeurons) -> Tensor:
    """Per neuron of a layer, its number in the same layer of a condensed network; −1 if it is not there."""
    place = torch.full((torch.Size(layer.shape).numel(),), -1, device=layer.elements.device)
    place[ours.elements] = torch.arange(len(ours.elements), device=place.device)
    return place[layer.elements]


def _own_slopes(
    proof: CondensedProof, layer: CondensedLayer, before: Sequence[NumberedNeurons], slopes: Tensor
) -> Tensor:
    """Slopes of chosen neurons (chosen, n) as those of the neurons before a layer; CROWN's where there are none."""
    ours = {one.position: one for one in proof.network.layers}
    own = proof.network.lines.lower_slope[: layer.rows.start].repeat(1, slopes.shape[1])
    for one in before:
        if one.position in ours:
            place = places(ours[one.position], one)
            there = (place >= 0).nonzero().flatten()
            own[ours[one.position].rows.start + place[there]] = slopes[one.rows][there]
    return own
