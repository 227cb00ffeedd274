"""Optimised slopes (α) and split multipliers (β): the best lower bound that gradient ascent finds.

Every iterate is a valid bound, so the best one seen is kept, a row at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.bounds.backward import Backward, Relaxation, Rows, Slopes, Trail
from steadynet.bounds.crown import MEMORY, propagate, rows_at_once, sharpened, tightened
from steadynet.bounds.layer_bounds import LayerBounds
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of


@dataclass(frozen=True)
class Ascent:
    """How slopes and multipliers are moved: Adam with a decaying rate."""

    iterations: int = 20
    slope_rate: float = 0.25
    multiplier_rate: float = 0.1
    decay: float = 0.97


@dataclass
class Splits:
    """The split rectifiers of a batch, flat: entry k splits element ``index[k]`` of rectifier ``position`` of its row.

    ``sign`` is +1 where the input is held ≥ 0 and −1 where it is held ≤ 0; ``beta`` ≥ 0 is its multiplier.
    """

    index: dict[int, tuple[Tensor, Tensor]]  # position -> (row, element)
    sign: dict[int, Tensor]
    beta: dict[int, Tensor]

    def restricted(self, rows: Tensor) -> Splits:
        """The splits of some rows, numbered anew."""
        place = {int(row): position for position, row in enumerate(rows.tolist())}
        index, sign, beta = {}, {}, {}
        for position, (row, element) in self.index.items():
            keep = torch.isin(row, rows)
            if bool(keep.any()):
                renumbered = torch.tensor([place[old] for old in row[keep].tolist()], device=row.device)
                index[position] = (renumbered, element[keep])
                sign[position], beta[position] = self.sign[position][keep], self.beta[position].detach()[keep]
        return Splits(index, sign, beta)

    def dense(self, shapes: dict[int, torch.Size]) -> dict[int, Tensor]:
        """β · sign where split, 0 elsewhere, in the shape of each rectifier's rows."""
        result = {}
        for position, (row, element) in self.index.items():
            flat = self.beta[position].new_zeros(shapes[position][0], shapes[position][1:].numel())
            result[position] = flat.index_put((row, element), self.beta[position] * self.sign[position]).view(
                shapes[position]
            )
        return result


def optimise(
    backward: Backward,
    position: int,
    rows: Rows,
    owner: Tensor | None,
    relaxations: dict[int, Relaxation],
    ascent: Ascent,
    *,
    slopes: Slopes | None = None,
    splits: Splits | None = None,
    enough: float = torch.inf,
    trail: Trail | None = None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Tensor:
    """The best lower bound a row; ``slopes`` and ``splits.beta`` end as the last iterate, ``trail`` as its pass.

    Stops early when every row's bound is above ``enough``.
    """
    slopes = slopes if slopes is not None else Slopes()
    best: Tensor | None = None
    optimiser: _Adam | None = None
    for iteration in range(ascent.iterations + 1):
        last = iteration == ascent.iterations
        with torch.set_grad_enabled(not last or optimiser is None):
            multipliers = splits.dense(_shapes(backward, len(rows.coefficients))) if splits else None
            bound = backward.lower(
                position, rows, owner, relaxations=relaxations, slopes=slopes, multipliers=multipliers, trail=trail
            )
        best = bound.detach() if best is None else torch.maximum(best, bound.detach())
        if last or bool((best > enough).all()) or out_of_time():
            break
        if optimiser is None:
            optimiser = _Adam(slopes, splits, ascent)
        if not optimiser.parameters:
            break
        optimiser.ascend(torch.autograd.grad(bound.sum(), optimiser.parameters, allow_unused=True))
        slopes.clamp()
        for beta in (splits.beta if splits else {}).values():
            beta.data.clamp_min_(0)
    assert best is not None
    return best


def _shapes(backward: Backward, rows: int) -> dict[int, torch.Size]:
    return {relu: torch.Size((rows, *backward.shapes[relu])) for relu in backward.graph.relus}


class _Adam:
    """Adam on slopes and multipliers. (The first step of torch's own imports its compiler, which takes a second.)"""

    def __init__(self, slopes: Slopes, splits: Splits | None, ascent: Ascent) -> None:
        multipliers = list(splits.beta.values()) if splits else []
        self.parameters = [*slopes.values.values(), *multipliers]
        self.rates = [ascent.slope_rate] * len(slopes.values) + [ascent.multiplier_rate] * len(multipliers)
        self.first = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.second = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.decay, self.steps = ascent.decay, 0

    @torch.no_grad()
    def ascend(self, gradients: Sequence[Tensor | None]) -> None:
        """One step up the gradients."""
        self.steps += 1
        scale = self.decay ** (self.steps - 1) / (1 - 0.9**self.steps)
        root = (1 - 0.999**self.steps) ** 0.5
        entries = zip(self.parameters, gradients, self.first, self.second, self.rates, strict=True)
        for parameter, gradient, first, second, rate in entries:
            if gradient is not None:
                first.lerp_(gradient, 0.1)
                second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                parameter.addcdiv_(first, second.sqrt().div_(root).add_(1e-8), value=rate * scale)


def optimised_bounds(
    network: nn.Module, region: InputRegion, ascent: Ascent | None = None, memory: int = MEMORY
) -> LayerBounds:
    """CROWN bounds with optimised slopes, for every unstable ReLU input and for the logits."""
    graph = graph_of(network, region.lower.shape[1:])
    with torch.no_grad():
        backward, values = propagate(graph, Interval(region.lower, region.upper), memory)
    ascent = ascent or Ascent()
    refine(backward, ascent, memory)
    position = graph.output
    everything = torch.ones_like(values[-1].lower, dtype=torch.bool)
    with torch.no_grad():
        output = tightened(backward, position, values[-1], everything, memory)
    output = optimised(backward, position, output, everything, ascent, memory)
    return LayerBounds("alpha-crown", [backward.bounds[relu] for relu in graph.relus], output)


def refine(
    backward: Backward, ascent: Ascent, memory: int = MEMORY, out_of_time: Callable[[], bool] = lambda: False
) -> None:
    """Tighten the bounds of every rectifier that other rectifiers feed, in place, first layers first."""
    relus = backward.graph.relus
    for relu in relus[1:]:
        source, known = backward.graph.source(relu), backward.bounds[relu]
        unstable = (known.lower < 0) & (known.upper > 0)
        if bool(unstable.any()) and not out_of_time():
            backward.bounds[relu] = optimised(backward, source, known, unstable, ascent, memory, out_of_time)


def optimised(
    backward: Backward,
    position: int,
    known: Interval,
    wanted: Tensor,
    ascent: Ascent,
    memory: int,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Interval:
    """The known bounds of a value, with optimised ones where ``wanted`` and tighter; fewer when time is over."""
    relaxations = {relu: backward.relaxation(relu) for relu in backward.graph.relus if relu <= position}

    def bound(rows: Rows, owner: Tensor) -> Tensor:
        if out_of_time():
            return torch.full_like(owner, -torch.inf, dtype=known.lower.dtype)
        return optimise(backward, position, rows, owner, relaxations, ascent, out_of_time=out_of_time)

    return sharpened(known, wanted, backward.shapes[position], rows_at_once(backward, position, memory // 4), bound)
