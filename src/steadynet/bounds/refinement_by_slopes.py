"""Tighter bounds of unstable ReLUs with slopes that are known already, such as those of another network's proof.

Any slope gives a valid bound, so one backward pass per layer is all that this takes: no ascent, no condensed network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork, BoundQuery
from steadynet.bounds.condensed_refinement import ColumnSlopes, NoteSlopes, no_note
from steadynet.bounds.linear_functions import single_neurons
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
    whole: BoundedNetwork,
    layers: Sequence[NumberedNeurons],
    slopes: Mapping[int, Tensor],
    out_of_time: Callable[[], bool] = lambda: False,
    note: NoteSlopes = no_note,
) -> BoundedNetwork:
    """The network over one box with bounds from these slopes, where they are tighter than the known ones.

    Args:
        whole: the network over the box of one property.
        layers: the neurons that the slopes speak of, layer by layer.
        slopes: per position of a layer, (2, its neurons, neurons before it): for the lower and the upper bounds.
        out_of_time: when this says yes, the bounds that are still to come stay as they are.
        note: is told the slopes that were used, as :func:`refined_by_condensed` does.
    """
    for number, layer in enumerate(layers):
        if layer.position not in slopes or out_of_time():
            continue
        known = whole.bounds[layer.position]
        bounds = tuple(side.clone().flatten() for side in known)
        unstable = known.unstable().flatten()[layer.elements].nonzero().flatten()  # the others need no better bounds
        both = torch.cat([unstable, unstable + len(layer.elements)])
        for columns in both.split(COLUMNS_AT_ONCE):
            side, row = columns // len(layer.elements), columns % len(layer.elements)
            chosen = slopes[layer.position][side, row].t().to(known.lower)  # (neurons before, columns)
            note(number, columns, chosen)
            found = _bounds(whole, layers[:number], layer, layer.elements[row], 1.0 - 2.0 * side, chosen)
            above, elements = side == 0, layer.elements[row]
            bounds[0][elements[above]] = torch.maximum(bounds[0][elements[above]], found[above])
            bounds[1][elements[~above]] = torch.minimum(bounds[1][elements[~above]], -found[~above])
        better = Interval(bounds[0].view_as(known.lower), torch.maximum(*bounds).view_as(known.upper))
        whole = replace(whole, bounds={**whole.bounds, layer.position: better})
    return whole


def _bounds(
    whole: BoundedNetwork,
    before: Sequence[NumberedNeurons],
    layer: NumberedNeurons,
    elements: Tensor,
    sign: Tensor,
    slopes: Tensor,
) -> Tensor:
    """Lower bounds of sign · z for some neurons of a layer, with every rounding counted."""
    source, dtype = whole.graph.source(layer.position), whole.box.lower.dtype
    places, rest = [], elements
    for size in reversed(layer.shape):
        places.append(rest % size)
        rest = rest // size
    chosen = torch.stack([torch.zeros_like(elements), *reversed(places)], 1)
    picked, owner = single_neurons(chosen, layer.shape, dtype)
    signed = picked.coefficients * sign.to(dtype).view(-1, *[1] * (picked.coefficients.dim() - 1))
    query = BoundQuery(source, picked.with_coefficients(signed), owner, ColumnSlopes(slopes, before))
    with torch.no_grad():
        return whole.relaxed(source).lower(query).bound(dtype)
