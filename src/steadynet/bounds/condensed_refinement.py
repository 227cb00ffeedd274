"""Tighter bounds of unstable ReLUs: an ascent on the condensed network, and a pass over the whole one that proves them.

The input of an unstable ReLU is a linear function of the input and of the unstable ReLUs before it, just as a margin
is. So the same ascent finds the slopes of its two bounds. One backward pass over the whole network with these slopes,
in which every rounding is counted, gives the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import ChosenNeurons, CondensedLayer, CondensedNetwork
from steadynet.bounds.condensed_bounds import Columns, SplitColumns, ascend
from steadynet.bounds.linear_functions import LinearFunctions, single_neurons
from steadynet.bounds.local_ascent import local_slopes
from steadynet.bounds.optimised import Ascent
from steadynet.bounds.queries import BoundQuery
from steadynet.bounds.relaxation import Relaxation, Slopes
from steadynet.graph.operations import Interval

NoteSlopes = Callable[[int, Tensor, Tensor], None]

COLUMNS_AT_ONCE, LOCAL_COLUMNS_AT_ONCE = 256, 1024
WIDE, WIDE_ITERATIONS = 100, 4  # layers with more unstable neurons than this get fewer iterations: they gain early
CLEARLY = 1e-3  # a bound above this shows the sign of a neuron, and need not be raised further


def no_note(number: int, bounds: Tensor, slopes: Tensor) -> None:
    """Forget the slopes behind refined bounds."""


def refined_by_condensed(
    network: CondensedNetwork,
    ascent: Ascent,
    out_of_time: Callable[[], bool] = lambda: False,
    note: NoteSlopes = no_note,
    first: int = 1,
) -> BoundedNetwork:
    """The whole network with tighter bounds of its unstable ReLUs, from the first layer to the last.

    Args:
        network: the condensed network of one property.
        ascent: how slopes are optimised.
        out_of_time: when this says yes, the bounds that are still to come stay as they are.
        note: is told the slopes behind n bounds of a layer: the layer's number, which bounds they are (n,) (first the
            lower bounds of all its neurons, then the upper ones), and the slopes of all neurons before it (neurons, n).
        first: the number of the first layer that gets tighter bounds.
    """
    whole = network.whole
    bounds, lines = Interval(*(side.clone() for side in network.bounds)), network.lines
    for number, layer in enumerate(network.layers):
        if number < max(first, 1):
            continue  # behind stable ReLUs alone, a neuron is linear, and its bounds are exact
        before = slice(0, layer.rows.start)
        part = replace(
            network,
            whole=whole,
            layers=network.layers[:number],
            bounds=Interval(*(side[before] for side in bounds)),
            lines=_of_rows(lines, before),
            floor=network.floor[before],
        )
        wide = len(layer.elements) > WIDE
        shorter = replace(ascent, iterations=min(ascent.iterations, WIDE_ITERATIONS)) if wide else ascent
        better = _refined_layer(part, layer, shorter, out_of_time, partial(note, number))
        whole = replace(whole, bounds={**whole.bounds, layer.position: better})
        for side, known in zip(bounds, better, strict=True):
            side[layer.rows] = known.flatten()[layer.elements, None]
        slope = float(network.floor[layer.rows.start])
        lines = _with_rows(lines, layer.rows, Relaxation.crown(Interval(*(side[layer.rows] for side in bounds)), slope))
    return whole


def _refined_layer(
    before: CondensedNetwork,
    layer: CondensedLayer,
    ascent: Ascent,
    out_of_time: Callable[[], bool],
    note: Callable[[Tensor, Tensor], None],
) -> Interval:
    """Bounds of the unstable neurons of a layer, on the condensed network before it; the known ones where tighter."""
    known = before.whole.bounds[layer.position]
    lower, upper = (side.clone().flatten() for side in known)
    source = before.whole.graph.source(layer.position)
    relaxed = before.whole.relaxed(source)
    matrix = layer.matrix.dense()
    count = len(layer.elements)
    signs = torch.ones(2 * count, dtype=matrix.dtype, device=matrix.device)
    signs[count:] = -1.0  # an upper bound of z is −(a lower bound of −z)
    chosen = torch.zeros(known.lower.shape, dtype=torch.bool, device=known.lower.device)
    chosen.view(-1)[layer.elements] = True
    places = chosen.nonzero()  # (count, 1 + axes); torch.unravel_index would import sympy, which takes a second
    at_once = LOCAL_COLUMNS_AT_ONCE if len(before.layers) == 1 else COLUMNS_AT_ONCE
    for columns in torch.arange(2 * count, device=matrix.device).split(at_once):
        if out_of_time():
            break
        rows, sign = columns % count, signs[columns]
        functions = replace(
            before, margins=(matrix[rows] * sign[:, None]).t().contiguous(), constants=layer.constant[rows] * sign
        )
        found_slopes = local_slopes(functions, matrix[rows] * sign[:, None], ascent, CLEARLY)
        if found_slopes is None:
            batch = _columns(functions, len(columns))
            ascend(functions, batch, ascent, out_of_time, CLEARLY)
            found_slopes = batch.slopes
        note(columns, found_slopes)
        picked, owner = single_neurons(places[rows], tuple(known.lower.shape[1:]), matrix.dtype)
        signed = picked.coefficients * sign.view(-1, *[1] * (picked.coefficients.dim() - 1))
        slopes = ColumnSlopes(found_slopes, before.layers)
        with torch.no_grad():
            query = BoundQuery(source, picked.with_coefficients(signed), owner, slopes)
            found = relaxed.lower(query).bound(matrix.dtype)
        elements, above = layer.elements[rows], sign > 0
        lower[elements[above]] = torch.maximum(lower[elements[above]], found[above])
        upper[elements[~above]] = torch.minimum(upper[elements[~above]], -found[~above])
    return Interval(lower.view_as(known.lower), torch.maximum(upper, lower).view_as(known.upper))


def _columns(network: CondensedNetwork, count: int) -> Columns:
    """All functions of a network as columns without a split, with the slopes of CROWN."""
    device, dtype = network.margins.device, network.margins.dtype
    index, number = torch.zeros(0, dtype=torch.long, device=device), torch.zeros(0, dtype=dtype, device=device)
    every = torch.arange(count, device=device)
    splits = SplitColumns(index, index, number, number.clone())
    return Columns.of(network, every, network.lines.lower_slope.repeat(1, count), splits)


def _of_rows(lines: Relaxation, rows: slice) -> Relaxation:
    return Relaxation(lines.lower_slope[rows], lines.upper_slope[rows], lines.upper_shift[rows])


def _with_rows(lines: Relaxation, rows: slice, some: Relaxation) -> Relaxation:
    """The lines of all neurons, with those of some layer replaced."""
    result = Relaxation(lines.lower_slope.clone(), lines.upper_slope.clone(), lines.upper_shift.clone())
    result.lower_slope[rows], result.upper_slope[rows] = some.lower_slope, some.upper_slope
    result.upper_shift[rows] = some.upper_shift
    return result


class ColumnSlopes(Slopes):
    """The slopes that an ascent on a condensed network found, one column per function, for a pass over the whole one.

    Whatever they are, a pass with them gives valid bounds: a ReLU whose sign is known has the slope of its relaxation,
    and the slope of another one is pulled into its range.
    """

    def __init__(self, columns: Tensor, layers: Sequence[ChosenNeurons]) -> None:
        super().__init__()
        self.columns = columns
        self.layers = {layer.position: layer for layer in layers}

    def at(self, position: int, functions: LinearFunctions, owner: Tensor | None, relaxation: Relaxation) -> Tensor:
        """The slopes of one ReLU layer, as the functions see it."""
        fixed = functions.gather(relaxation.lower_slope, owner).expand_as(functions.coefficients)
        if position not in self.layers:
            return fixed
        layer = self.layers[position]
        numbers = torch.zeros(1, *layer.shape, dtype=torch.float64, device=fixed.device)
        here = torch.arange(1, 1 + len(layer.elements), dtype=torch.float64, device=fixed.device)
        numbers.view(-1)[layer.elements] = here  # 0 for the other neurons, and outside the layer
        seen = functions.gather(numbers, owner).expand_as(fixed).long()
        unstable = (functions.gather(relaxation.upper_shift, owner) > 0) & (seen > 0)
        slopes = torch.nn.functional.pad(self.columns[layer.rows].t(), (1, 0)).contiguous().to(fixed)
        found = slopes.gather(1, seen.flatten(1)).view_as(fixed).clamp(relaxation.slope, 1.0)
        return torch.where(unstable, found, fixed)
