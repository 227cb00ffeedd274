"""Optimised slopes (α) and split multipliers (β): gradient ascent on the lower bound of CROWN's backward pass.

Every iterate is a valid bound, so each function keeps the best one seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.bounds.backward import BoundedNetwork, RelaxedNetwork
from steadynet.bounds.crown import MEMORY, functions_at_once, propagate, smaller_for, tightened, worth_bounding
from steadynet.bounds.layer_bounds import LayerBounds
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.queries import BoundQuery, Trail, rounded_down
from steadynet.bounds.relaxation import Slopes
from steadynet.bounds.sharpening import sharpened
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
    """The split ReLUs of a batch of functions, per position in the graph, as flat lists.

    Entry k of ``index[position]`` = (rows, elements) says that function rows[k] splits element elements[k] of that
    ReLU layer. ``sign`` is +1 where the input is held ≥ 0 and −1 where it is held ≤ 0; ``beta`` ≥ 0 is its multiplier.
    The input of a sigmoid or tanh is held on one side of ``at`` instead of 0, and may be held from both sides.
    """

    index: dict[int, tuple[Tensor, Tensor]]
    sign: dict[int, Tensor]
    beta: dict[int, Tensor]
    at: dict[int, Tensor] = field(default_factory=dict)

    def restricted(self, rows: Tensor) -> Splits:
        """The splits of some functions, numbered anew."""
        place = {int(row): number for number, row in enumerate(rows.tolist())}
        index, sign, beta, at = {}, {}, {}, {}
        for position, (row, element) in self.index.items():
            keep = torch.isin(row, rows)
            if bool(keep.any()):
                renumbered = torch.tensor([place[old] for old in row[keep].tolist()], device=row.device)
                index[position] = (renumbered, element[keep])
                sign[position], beta[position] = self.sign[position][keep], self.beta[position].detach()[keep]
                if position in self.at:
                    at[position] = self.at[position][keep]
        return Splits(index, sign, beta, at)

    def multipliers(self, functions: int, bounded: BoundedNetwork) -> Mapping[int, Tensor] | None:
        """β · sign where a ReLU is split and 0 elsewhere, as a backward pass takes them; None without splits."""
        if not self.index:
            return None
        result = {}
        for position, (row, element) in self.index.items():
            shape = torch.Size((functions, *bounded.shapes[position]))
            flat = self.beta[position].new_zeros(functions, shape[1:].numel())
            values = self.beta[position] * self.sign[position]
            result[position] = flat.index_put((row, element), values, accumulate=True).view(shape)
        return result


@dataclass(frozen=True)
class Optimised:
    """The best bounds that an ascent found, and the value, slopes, splits and coefficients of its last iterate.

    Attributes:
        lower: (n,), the best bounds, with every rounding counted if the network says how it rounds.
        value: (n,), the last bounds as computed.
        slopes: the last slopes.
        splits: the last multipliers.
        trail: the coefficients that the last pass met; empty if nobody asked for them.
    """

    lower: Tensor
    value: Tensor
    slopes: Slopes
    splits: Splits
    trail: Trail


def optimise(
    relaxed: RelaxedNetwork,
    query: BoundQuery,
    ascent: Ascent,
    splits: Splits | None = None,
    *,
    enough: float = torch.inf,
    out_of_time: Callable[[], bool] = lambda: False,
    with_trail: bool = False,
) -> Optimised:
    """Raise the lower bounds of some functions by gradient ascent on their slopes and multipliers.

    Args:
        relaxed: the network.
        query: the functions. Their ``slopes`` are the start of the ascent, CROWN's if there are none.
        ascent: how many steps, and how long they are.
        splits: the split ReLUs of each function; their multipliers are the start.
        enough: stop as soon as every bound is above this.
        out_of_time: stop as soon as this says yes.
        with_trail: whether to keep the coefficients of the last pass. Those of functions that see patches take long.
    """
    slopes = Slopes() if query.slopes is None else query.slopes
    splits = Splits({}, {}, {}) if splits is None else splits
    trail = Trail()
    best: Tensor | None = None
    optimiser: _Adam | None = None
    for iteration in range(ascent.iterations + 1):
        last = iteration == ascent.iterations
        with torch.set_grad_enabled(not last or optimiser is None):
            multipliers = splits.multipliers(len(query), relaxed.network)
            bound = relaxed.lower(replace(query, slopes=slopes, multipliers=multipliers), trail if with_trail else None)
        best = bound.proved if best is None else torch.maximum(best, bound.proved)
        if last or bool((best > enough).all()) or out_of_time():
            break
        if optimiser is None:  # the first pass has made the slopes
            optimiser = _Adam(slopes, splits, ascent)
        if not optimiser.parameters:
            break
        optimiser.ascend(torch.autograd.grad(bound.value.sum(), optimiser.parameters, allow_unused=True))
        slopes.clamp()
        for beta in splits.beta.values():
            beta.data.clamp_min_(0)
    assert best is not None
    return Optimised(best, bound.value.detach(), slopes, splits, trail)


class _Adam:
    """Adam on slopes and multipliers. (The first step of torch's own imports its compiler, which takes a second.)"""

    def __init__(self, slopes: Slopes, splits: Splits, ascent: Ascent) -> None:
        multipliers = list(splits.beta.values())
        self.parameters = [*slopes.values.values(), *multipliers]
        self.rates = [ascent.slope_rate] * len(slopes.values) + [ascent.multiplier_rate] * len(multipliers)
        self.first = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.second = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.decay, self.steps = ascent.decay, 0

    @torch.no_grad()
    def ascend(self, gradients: Sequence[Tensor | None]) -> None:
        """Take one step up the gradients."""
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
    """Bound every unstable ReLU input and every logit by CROWN with optimised slopes (α-CROWN).

    Args:
        network: any PyTorch network whose operations are known.
        region: the input boxes, one per image.
        ascent: how the slopes are optimised.
        memory: bytes that a backward pass may take.
    """
    graph = graph_of(network, region.lower.shape[1:])
    with torch.no_grad():
        bounded, values = propagate(graph, Interval(region.lower, region.upper), memory)
    ascent = ascent or Ascent()
    bounded = refined(bounded, ascent, memory)
    every = torch.ones_like(values[-1].lower, dtype=torch.bool)
    with torch.no_grad():
        output = tightened(bounded, bounded.output, values[-1], every, memory)
    output = _optimised(bounded, bounded.output, output, every, ascent, memory)
    return LayerBounds("alpha-crown", bounded.relus(), output)


def refined(
    bounded: BoundedNetwork, ascent: Ascent, memory: int = MEMORY, out_of_time: Callable[[], bool] = lambda: False
) -> BoundedNetwork:
    """The network with tighter bounds of every ReLU that lies behind another ReLU, from the first layer to the last."""
    for position in bounded.graph.activations[1:]:
        source, known = bounded.graph.source(position), bounded.bounds[position]
        wanted = worth_bounding(bounded.graph.producer(position).operation, known)
        if bool(wanted.any()) and not out_of_time():
            better = _optimised(bounded, source, known, wanted, ascent, memory, out_of_time)
            bounded = replace(bounded, bounds={**bounded.bounds, position: better})
    return bounded


def _optimised(
    bounded: BoundedNetwork,
    position: int,
    known: Interval,
    wanted: Tensor,
    ascent: Ascent,
    memory: int,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Interval:
    """The known bounds of a value, with optimised ones where ``wanted`` and tighter; fewer when time is over."""
    before = replace(bounded, bounds={place: bound for place, bound in bounded.bounds.items() if place <= position})
    smaller = smaller_for(before, position, int(wanted.sum()))
    relaxed = smaller.relaxed(position)

    def bound(functions: LinearFunctions, owner: Tensor) -> Tensor:
        if out_of_time():
            return torch.full_like(owner, -torch.inf, dtype=known.lower.dtype)
        best = optimise(relaxed, BoundQuery(position, functions, owner), ascent, out_of_time=out_of_time)
        return rounded_down(best.lower, known.lower.dtype)

    at_once = functions_at_once(smaller, position, memory // 4)  # gradients take memory, too
    return sharpened(known, wanted, bounded.shapes[position], at_once, bound)
