"""Which ReLU to split: candidates by what their relaxation costs, the best of them by trying both sides.

Sigmoids and tanhs are candidates, too (:mod:`steadynet.verification.search.curve_splits`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from steadynet.bounds.backward import RelaxedNetwork
from steadynet.bounds.relaxation import Relaxation, Slopes
from steadynet.bounds.s_shaped_lines import SShapedLines
from steadynet.verification.search.bounding import BoundedBatch
from steadynet.verification.search.curve_splits import CurveLayer, Undo

SIGNS = (1, -1)  # the two sides of a split: input ≥ 0, input ≤ 0


@dataclass(frozen=True)
class Candidates:
    """The most promising ReLUs of each row, best first.

    Attributes:
        positions: the ReLU layers, in the order in which ``places`` counts their neurons.
        sizes: how many neurons each of these layers has.
        scores: (n, candidates), what the relaxation of a candidate costs; −1 where a row has no more candidates.
        places: (n, candidates), the neuron's number in the concatenation of all layers.
        curves: the layers of sigmoids and tanhs among ``positions``.
    """

    positions: Sequence[int]
    sizes: Sequence[int]
    scores: Tensor
    places: Tensor
    curves: Mapping[int, CurveLayer]

    def relus(self) -> list[int]:
        """The positions of the ReLU layers proper."""
        return [position for position in self.positions if position not in self.curves]


def candidates(batch: BoundedBatch, count: int) -> Candidates:
    """Per row the ``count`` unstable ReLUs whose relaxation costs the bound most.

    A ReLU with coefficient a < 0 behind it costs at most −a · upper_shift, the height of the chord at zero. With a > 0
    the lower line costs at most a · min(u, −l), but its slope is already optimised: such ReLUs come last.
    """
    positions = sorted(batch.behind)
    curves = {position: CurveLayer.of(batch, position) for position in positions if position in batch.relaxed.curves}
    scores = []
    for position in positions:
        coefficients = batch.behind[position].flatten(1)
        if position in curves:
            scores.append(curves[position].scores(coefficients))
            continue
        known = batch.relaxed.network.bounds[position]
        chord = batch.relaxed.relaxations[position].upper_shift.flatten(1)
        depth = torch.minimum(known.upper, -known.lower).flatten(1)
        cost = torch.where(coefficients < 0, -coefficients * chord, 0.01 * coefficients * depth)
        scores.append(torch.where(known.unstable().flatten(1), cost.clamp_min(1e-12), -1.0))
    joined = torch.cat(scores, 1)
    best, places = joined.topk(min(count, joined.shape[1]), dim=1)
    return Candidates(positions, [layer.shape[1] for layer in scores], best, places, curves)


def split_bounds(batch: BoundedBatch, tried: Candidates, out_of_time: Callable[[], bool] = lambda: False) -> Tensor:
    """Quick lower bounds of both sides of every candidate, without optimising; shape (2, n, candidates).

    When time is over the rest stays −∞, as nothing is known of it. A split changes the lines of one ReLU per row: they
    are set in place for one pass, and put back.
    """
    lines = {position: batch.relaxed.relaxations[position].writable_upper() for position in tried.relus()}
    slopes = Slopes.fixed({position: batch.slopes.values[position].detach().clone() for position in tried.relus()})
    query = replace(batch.query, slopes=slopes)
    curves = {position: layer.fixed_lines(batch) for position, layer in tried.curves.items()}
    relaxed = RelaxedNetwork(batch.relaxed.network, lines, batch.relaxed.errors, curves)
    result = batch.lower.new_full((len(SIGNS), *tried.places.shape), -torch.inf)
    for candidate in range(tried.places.shape[1]):
        if out_of_time():
            break
        for side, sign in enumerate(SIGNS):
            changed = _fix(lines, slopes, curves, tried, tried.places[:, candidate], sign)
            result[side, :, candidate] = relaxed.lower(query).proved
            for tensor, row, element, before in changed:
                tensor[row, element] = before
    return result


def _fix(
    lines: dict[int, Relaxation],
    slopes: Slopes,
    curves: dict[int, SShapedLines],
    tried: Candidates,
    place: Tensor,
    sign: int,
) -> list[Undo]:
    """Set the lines of one ReLU per row to those of a known sign; returns what stood there before."""
    changed, start = list[Undo](), 0
    for position, size in zip(tried.positions, tried.sizes, strict=True):
        row = ((place >= start) & (place < start + size)).nonzero().flatten()
        element = place[row] - start
        start += size
        if position in curves:
            changed += tried.curves[position].fix(curves[position], row, element, sign)
            continue
        tensors = (lines[position].upper_slope, lines[position].upper_shift, slopes.values[position])
        steep = 1.0 if sign > 0 else lines[position].slope
        for tensor, value in zip(tensors, (steep, 0.0, steep), strict=True):
            flat = tensor.view(len(tensor), -1)
            changed.append((flat, row, element, flat[row, element]))
            flat[row, element] = value
    return changed


@dataclass(frozen=True)
class Choice:
    """Where to split each row, and quick bounds of its two sides.

    Attributes:
        neurons: per row what to split; None for a leaf, where no ReLU is unstable.
        sides: (2, n), lower bounds of the margin on either side.
    """

    neurons: list[Neuron | None]
    sides: Tensor


class Neuron(NamedTuple):
    """Where to split: the ReLU's layer, its element there, and the point, which is 0 for a ReLU."""

    position: int
    element: int
    at: float = 0.0


def choose(batch: BoundedBatch, count: int, out_of_time: Callable[[], bool] = lambda: False) -> Choice:
    """Of ``count`` candidates per row, choose the one with the largest product of gains (filtered smart branching)."""
    if not batch.behind:  # a network without a ReLU
        return Choice([None] * len(batch.lower), batch.lower.new_zeros(2, len(batch.lower)))
    tried = candidates(batch, count)
    valid = tried.scores > 0
    with torch.no_grad():
        quick = split_bounds(batch, tried, out_of_time)
    gain = (quick.clamp_max(0) - batch.lower[:, None]).clamp_min(1e-4)  # past zero a side is proved: no more to gain
    pick = torch.where(valid, gain[0] * gain[1], -torch.inf).argmax(1)
    place = torch.where(valid.any(1), tried.places.gather(1, pick[:, None]).squeeze(1), -1)
    sides = quick.gather(2, pick[None, :, None].expand(2, -1, 1)).squeeze(2)
    return Choice([_neuron(tried, row, number) for row, number in enumerate(place.tolist())], sides)


def _neuron(tried: Candidates, row: int, place: int) -> Neuron | None:
    """The ReLU layer and the element that a place in the concatenation of all layers stands for."""
    if place < 0:
        return None
    for position, size in zip(tried.positions, tried.sizes, strict=True):
        if place < size:
            return Neuron(position, place, tried.curves[position].at(row, place) if position in tried.curves else 0.0)
        place -= size
    raise IndexError("the place lies behind the last layer")
