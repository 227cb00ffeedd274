"""Which neuron to split: candidates by what their relaxation costs, the best of them by trying both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.backward import Relaxation, Rows, Slopes
from steadynet.verification.search.bounding import Bounded


def candidates(batch: Bounded, count: int) -> tuple[list[int], Tensor, Tensor]:
    """(positions, scores, places): per row the ``count`` unstable neurons whose relaxation costs the bound most.

    A neuron with coefficient a < 0 behind it costs at most −a · upper_shift, the chord's height above zero. With a > 0
    the lower line costs at most a · min(u, −l), but its slope is already optimised: such neurons come last. ``places``
    index the concatenation of all ``positions``.
    """
    positions = sorted(batch.behind)
    scores = []
    for position in positions:
        coefficients = batch.behind[position].flatten(1)
        lower, upper = (side.flatten(1) for side in batch.bounds[position])
        unstable = (lower < 0) & (upper > 0)
        chord = batch.relaxations[position].upper_shift.flatten(1)
        depth = torch.minimum(upper, -lower)
        cost = torch.where(coefficients < 0, -coefficients * chord, 0.01 * coefficients * depth)
        scores.append(torch.where(unstable, cost.clamp_min(1e-12), -1.0))
    joined = torch.cat(scores, 1)
    best, places = joined.topk(min(count, joined.shape[1]), dim=1)
    return positions, best, places


def split_bounds(
    batch: Bounded, rows: Rows, positions: list[int], places: Tensor, out_of_time: Callable[[], bool] = lambda: False
) -> Tensor:
    """Quick lower bounds of both sides of every candidate, without optimising: (2, n, candidates).

    When time is over the rest stays −∞, as nothing is known of it. A split changes the lines of one neuron a row: they
    are set in place for one pass, and put back.
    """
    lines = {position: _copied(batch.relaxations[position]) for position in positions}
    slopes = Slopes({position: batch.slopes.values[position].detach().clone() for position in positions})
    slopes.largest = dict(slopes.values)  # as they are: nothing moves them here
    multipliers = batch.splits.dense({position: batch.behind[position].shape for position in positions})
    result = batch.lower.new_full((2, *places.shape), -torch.inf)
    for candidate in range(places.shape[1]):
        if out_of_time():
            break
        for side, sign in enumerate((1, -1)):
            changed = _fix(lines, slopes, positions, places[:, candidate], sign)
            result[side, :, candidate] = batch.backward.lower(
                batch.backward.graph.output,
                rows,
                None,
                relaxations=lines,
                slopes=slopes,
                multipliers=multipliers,
            )
            for tensor, row, element, before in changed:
                tensor[row, element] = before
    return result


def _copied(lines: Relaxation) -> Relaxation:
    return Relaxation(lines.lower_slope, lines.upper_slope.clone(), lines.upper_shift.clone(), lines.slope)


def _fix(
    lines: dict[int, Relaxation], slopes: Slopes, positions: list[int], place: Tensor, sign: int
) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Set the lines of one neuron a row to those of a fixed sign; returns what stood there before."""
    changed, start = [], 0
    for position in positions:
        tensors = (lines[position].upper_slope, lines[position].upper_shift, slopes.values[position])
        size = tensors[0][0].numel()
        row = ((place >= start) & (place < start + size)).nonzero().flatten()
        element = place[row] - start
        start += size
        steep = 1.0 if sign > 0 else lines[position].slope
        for tensor, value in zip(tensors, (steep, 0.0, steep), strict=True):
            flat = tensor.view(len(tensor), -1)
            changed.append((flat, row, element, flat[row, element]))
            flat[row, element] = value
    return changed


@dataclass(frozen=True)
class Choice:
    """Where to split each row, and quick bounds of its two sides (2, n)."""

    positions: list[int]
    sizes: list[int]
    places: Tensor
    sides: Tensor

    def where(self, row: int) -> tuple[int, int] | None:
        """The rectifier and its element; None for a leaf, where no neuron is unstable."""
        place = int(self.places[row])
        for position, size in zip(self.positions, self.sizes, strict=True):
            if 0 <= place < size:
                return position, place
            place -= size
        return None


def choose(batch: Bounded, rows: Rows, count: int, out_of_time: Callable[[], bool] = lambda: False) -> Choice:
    """Of the candidates a row, the one whose sides gain most, as a product (filtered smart branching)."""
    if not batch.behind:  # a network without a rectifier
        return Choice(
            [], [], torch.full_like(batch.lower, -1, dtype=torch.long), batch.lower.new_zeros(2, len(batch.lower))
        )
    positions, scores, places = candidates(batch, count)
    valid = scores > 0
    with torch.no_grad():
        quick = split_bounds(batch, rows, positions, places, out_of_time)
    gain = (quick.clamp_max(0) - batch.lower[:, None]).clamp_min(1e-4)  # past zero a side is proved: no more to gain
    pick = torch.where(valid, gain[0] * gain[1], -torch.inf).argmax(1)
    place = places.gather(1, pick[:, None]).squeeze(1)
    sides = quick.gather(2, pick[None, :, None].expand(2, -1, 1)).squeeze(2)
    sizes = [batch.behind[position][0].numel() for position in positions]
    return Choice(positions, sizes, torch.where(valid.any(1), place, -1), sides)
