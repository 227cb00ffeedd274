"""Branch and bound over ReLU signs on the condensed network of one property; every proof is made on the whole network.

The condensed network holds the unstable ReLUs only, so its bounds are quick, but they are rounded without care. A
subproblem whose bound is positive is bounded once more, by one pass over the whole network with the same slopes and
multipliers in which every rounding is counted. Only that pass proves it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundQuery
from steadynet.bounds.condensed import (
    ColumnBounds,
    Columns,
    CondensedNetwork,
    SplitColumns,
    ascend,
    condense,
    lower,
    margins_at,
    whole_batch,
)
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.optimised import Ascent
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.attack import descend_on_margins
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.leaves import LeafSettler
from steadynet.verification.search.property_batch import SearchState
from steadynet.verification.search.rounding import confirmed
from steadynet.verification.search.subproblem import Split, Subproblem

ASCENT = Ascent(iterations=5, slope_rate=0.1, multiplier_rate=0.1)
CANDIDATES = 4  # ReLUs per subproblem that are tried on both sides
SIGNS = (1, -1)
POLISHED, POLISHING_STEPS, POLISH_EVERY = 16, 15, 8  # minimisers that are tried after a short descent, every few batches
TURN = 2048  # subproblems of a property before the next one has its turn
MEMORY = 3 << 29  # bytes that open subproblems may take


@dataclass(frozen=True)
class Part:
    """One margin with some ReLU signs fixed.

    Attributes:
        margin: the margin.
        lower: a lower bound of the margin, as it was computed.
        neurons: the split ReLUs.
        signs: the side that each is held on.
        betas: the multiplier of each.
        slopes: (neurons,), the slopes that its parent ended with, in half precision.
    """

    margin: int
    lower: float
    neurons: tuple[int, ...]
    signs: tuple[int, ...]
    betas: tuple[float, ...]
    slopes: Tensor


def split_condensed(state: SearchState, decisions: Decisions) -> SearchState:
    """Split the ReLUs of every open property on its condensed network until it is decided, or out of time."""
    waiting = [_PropertySearch(state, decisions, index) for index in sorted(decisions.open)]
    while waiting:
        for search in waiting:
            search.run(TURN)
        waiting = [search for search in waiting if search.index in decisions.open]
    return state


class _PropertySearch:
    """The open subproblems of one property."""

    def __init__(self, state: SearchState, decisions: Decisions, index: int) -> None:
        self.state, self.decisions, self.index = state, decisions, index
        self.open: list[tuple[float, int, Part]] = []
        self.count, self.batches = 0, 0
        self.settler = LeafSettler(state, decisions)
        self.network: CondensedNetwork | None = None

    def _start(self) -> None:
        rows = torch.tensor([self.index], device=self.state.lower.device)
        margins = self.state.batch.margins[self.index]
        self.network = condense(self.state.network.of_properties(rows), margins, self.state.batch.budget.memory)
        self.capacity = MEMORY // (2 * self.network.neurons + 4096)
        for margin in (self.state.lower[self.index] <= 0).nonzero().flatten().tolist():
            slopes = self._condensed_slopes(self.state.slopes.get((self.index, margin), {}))
            self._push([Part(margin, float(self.state.lower[self.index, margin]), (), (), (), slopes)])

    def _condensed_slopes(self, slopes: dict[int, Tensor]) -> Tensor:
        assert self.network is not None
        result = self.network.lines.lower_slope[:, 0].half()
        for layer in self.network.layers:
            if layer.position in slopes:
                result[layer.rows] = slopes[layer.position].flatten()[layer.elements].half()
        return result

    def _push(self, parts: Iterable[Part]) -> None:
        crowded = len(self.open) >= self.capacity
        for part in parts:
            self.count += 1
            heapq.heappush(self.open, (-torch.inf if crowded else part.lower, -self.count, part))

    def run(self, limit: int) -> None:
        """Bound and split some subproblems, or until the property is decided."""
        if self.index not in self.decisions.open:
            return
        if self.network is None:
            self._start()
        taken = 0
        while self.index in self.decisions.open and self.open and taken < limit:
            batch = [heapq.heappop(self.open)[2] for _ in range(min(self.state.batch.budget.batch, len(self.open)))]
            taken += len(batch)
            self.decisions.subproblems[self.index] += len(batch)
            self._branch(batch)
            self.decisions.charge([self.index])
        if self.index in self.decisions.open and not self.open:
            self.settler.conclude(self.index, DecidedBy.RELU_SPLITTING)
            self.decisions.charge([self.index])

    def _branch(self, parts: list[Part]) -> None:
        assert self.network is not None
        out_of_time = self.decisions.out_of_time([self.index])
        batch = self._columns(parts)
        found = ascend(self.network, batch, ASCENT, out_of_time)
        self._try_minimisers(batch, found)
        if self.index not in self.decisions.open:
            return
        if out_of_time():
            self._push(parts)
            return
        positive = (found.lower > 0).nonzero().flatten()
        ended = _parts_of(parts, batch, found.lower)
        proved = self._prove([ended[row] for row in positive.tolist()])
        left = [row for row in range(len(parts)) if row not in {row for row, done in zip(positive.tolist(), proved, strict=True) if done}]
        if left:
            columns = torch.tensor(left, device=found.lower.device)
            kept = ColumnBounds(found.lower[columns], found.behind[:, columns], found.minimiser[:, columns])
            self._split(batch.restricted(columns), kept, [ended[row] for row in left], out_of_time)

    def _columns(self, parts: Sequence[Part]) -> Columns:
        assert self.network is not None
        device, dtype = self.network.margins.device, self.network.margins.dtype
        columns = [column for column, part in enumerate(parts) for _ in part.neurons]
        splits = SplitColumns(
            torch.tensor([neuron for part in parts for neuron in part.neurons], dtype=torch.long, device=device),
            torch.tensor(columns, dtype=torch.long, device=device),
            torch.tensor([sign for part in parts for sign in part.signs], dtype=dtype, device=device),
            torch.tensor([beta for part in parts for beta in part.betas], dtype=dtype, device=device),
        )
        slopes = torch.stack([part.slopes for part in parts], 1).to(dtype)
        margin = torch.tensor([part.margin for part in parts], device=device)
        return Columns.of(self.network, margin, slopes, splits)

    def _try_minimisers(self, batch: Columns, found: ColumnBounds) -> None:
        """Try the points where bounds are attained as counterexamples; now and then after a short descent, too."""
        assert self.network is not None
        properties = self.state.batch.properties
        reached = margins_at(self.network, batch.margin, found.minimiser)
        best = reached.topk(min(POLISHED, len(batch)), largest=False).indices
        points = found.minimiser[:, best].t().reshape(-1, *properties.images.shape[1:])
        for row in (reached[best] <= 1e-3).nonzero().flatten().tolist():
            if self.decisions.refute(self.index, points[row], DecidedBy.RELU_SPLITTING):
                return
        self.batches += 1
        if self.batches % POLISH_EVERY == 1:
            owner = torch.full_like(best, self.index)
            descend_on_margins(
                self.state.batch, self.decisions, owner, batch.margin[best], points, POLISHING_STEPS
            )

    def _prove(self, parts: Sequence[Part]) -> list[bool]:
        """Whether each part is proved by a pass over the whole network in which every rounding is counted."""
        if not parts:
            return []
        assert self.network is not None
        network, batch = self.network, self._columns(parts)
        margins = self.state.batch.margins[self.index]
        with torch.no_grad():
            restricted, slopes, multipliers = whole_batch(network, batch)
            query = BoundQuery(
                restricted.output, LinearFunctions(margins[batch.margin]), slopes=slopes, multipliers=multipliers
            )
            relaxed = restricted.relaxed()
            bound = relaxed.lower(query)
            return (confirmed(relaxed, query, bound.proved, bound.value) > 0).tolist()

    def _expanded(self, part: Part) -> Subproblem:
        """A part in terms of the whole network."""
        assert self.network is not None
        splits = []
        for neuron, sign, beta in zip(part.neurons, part.signs, part.betas, strict=True):
            layer = next(layer for layer in self.network.layers if layer.rows.start <= neuron < layer.rows.stop)
            splits.append(Split(layer.position, int(layer.elements[neuron - layer.rows.start]), sign, beta))
        slopes = {}
        for layer in self.network.layers:
            known = self.network.whole.bounds[layer.position]
            full = (known.lower[0] >= 0).flatten().to(part.slopes.dtype)
            full[layer.elements] = part.slopes[layer.rows]
            slopes[layer.position] = full.view(layer.shape)
        return Subproblem(self.index, part.margin, part.lower, tuple(splits), slopes)

    def _split(
        self, batch: Columns, found: ColumnBounds, parts: Sequence[Part], out_of_time: Callable[[], bool]
    ) -> None:
        assert self.network is not None
        neurons, sides = _choose(self.network, batch, found, CANDIDATES, out_of_time)
        children = []
        for row, (part, neuron) in enumerate(zip(parts, neurons, strict=True)):
            if neuron is None:
                leaf = self._expanded(part)
                if not self.settler.settle(leaf):
                    self._push([part])
                continue
            for side, sign in enumerate(SIGNS):
                bound = sides[side][row]
                child = Part(
                    part.margin,
                    max(part.lower, bound),
                    (*part.neurons, neuron),
                    (*part.signs, sign),
                    (*part.betas, 0.0),
                    part.slopes,
                )
                children.append((bound, child))
        promising = [child for bound, child in children if bound > 0]
        proved = self._prove(promising)
        self._push(child for bound, child in children if not bound > 0)
        self._push(child for child, done in zip(promising, proved, strict=True) if not done)


def _parts_of(parts: Sequence[Part], batch: Columns, bounds: Tensor) -> list[Part]:
    """The parts with the slopes and multipliers that their bounds ended with."""
    slopes = batch.slopes.t().half()
    betas, first = batch.splits.beta.tolist(), 0
    result = []
    for row, (part, bound) in enumerate(zip(parts, bounds.tolist(), strict=True)):
        last = first + len(part.neurons)
        result.append(replace(part, lower=max(part.lower, bound), betas=tuple(betas[first:last]), slopes=slopes[row]))
        first = last
    return result


def _choose(
    network: CondensedNetwork, batch: Columns, found: ColumnBounds, count: int, out_of_time: Callable[[], bool]
) -> tuple[list[int | None], list[list[float]]]:
    """Of ``count`` candidates per column, the one with the largest product of gains, and bounds of both its sides."""
    columns = len(batch)
    if not network.neurons:
        return [None] * columns, [[0.0] * columns] * 2
    behind = found.behind
    depth = torch.minimum(network_upper(network), -network_lower(network))
    cost = torch.where(behind < 0, -behind * batch.upper_shift, 0.01 * behind * depth)
    cost = torch.where(batch.upper_shift > 0, cost.clamp_min(1e-12), -1.0)
    scores, places = cost.topk(min(count, len(cost)), dim=0)
    everyone = torch.arange(columns, device=behind.device)
    quick = behind.new_full((2, len(places), columns), -torch.inf)
    for number, place in enumerate(places):
        if out_of_time():
            break
        index = place, everyone
        before = [value[index] for value in (batch.upper_slope, batch.upper_shift, batch.slopes)]
        for side, sign in enumerate(SIGNS):
            fixed = torch.ones_like(before[0]) if sign > 0 else network.floor[place, 0]
            batch.upper_slope[index], batch.upper_shift[index], batch.slopes[index] = fixed, 0.0, fixed
            quick[side, number] = lower(network, batch).lower
        batch.upper_slope[index], batch.upper_shift[index], batch.slopes[index] = before
    gain = (quick.clamp_max(0) - found.lower).clamp_min(1e-4)
    pick = torch.where(scores > 0, gain[0] * gain[1], -torch.inf).argmax(0)
    chosen = places[pick, everyone].tolist()
    valid = (scores > 0).any(0).tolist()
    sides = quick[:, pick, everyone].tolist()
    return [place if good else None for place, good in zip(chosen, valid, strict=True)], sides


def network_lower(network: CondensedNetwork) -> Tensor:
    return torch.cat([network.whole.bounds[layer.position].lower.flatten()[layer.elements, None] for layer in network.layers])


def network_upper(network: CondensedNetwork) -> Tensor:
    return torch.cat([network.whole.bounds[layer.position].upper.flatten()[layer.elements, None] for layer in network.layers])
