"""Bounds of a batch of subproblems that belong to many properties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork, RelaxedNetwork
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.optimised import Ascent, Splits, optimise
from steadynet.bounds.queries import BoundQuery
from steadynet.bounds.relaxation import Slopes
from steadynet.graph.operations import Interval
from steadynet.verification.search.subproblem import Subproblem


@dataclass(frozen=True)
class BoundedBatch:
    """A batch of subproblems after bounding, with what branching and children need. Row i is subproblem i.

    Attributes:
        lower: (n,), lower bounds of the margins, with every rounding counted.
        value: (n,), the last bounds as they were computed.
        minimiser: (n, \\*image), the corner of the box where each bound is attained.
        behind: per ReLU position, the coefficients behind that ReLU.
        relaxed: the network with the splits applied to its inner bounds.
        query: the margins, with the slopes and multipliers that the bounds ended with.
        splits: the splits of every subproblem, with their multipliers.
    """

    lower: Tensor
    value: Tensor
    minimiser: Tensor
    behind: dict[int, Tensor]
    relaxed: RelaxedNetwork
    query: BoundQuery
    splits: Splits

    @property
    def slopes(self) -> Slopes:
        """The slopes that the bounds ended with."""
        assert self.query.slopes is not None
        return self.query.slopes

    def restricted(self, rows: Tensor) -> BoundedBatch:
        """The same for some rows of the batch."""
        network, splits = self.relaxed.network.of_properties(rows), self.splits.restricted(rows)
        query = replace(
            self.query,
            functions=self.query.functions.restricted(rows),
            slopes=self.slopes.restricted(rows),
            multipliers=splits.multipliers(len(rows), network),
        )
        behind = {position: value[rows] for position, value in self.behind.items()}
        known = (self.lower[rows], self.value[rows], self.minimiser[rows])
        return BoundedBatch(*known, behind, network.relaxed(), query, splits)


def bound(
    network: BoundedNetwork,
    margins: Tensor,
    subproblems: Sequence[Subproblem],
    ascent: Ascent,
    out_of_time: Callable[[], bool] = lambda: False,
) -> BoundedBatch:
    """Bound a batch by optimised slopes and multipliers, starting from where the parents ended.

    Args:
        network: the network over the boxes of all properties.
        margins: (properties, margins, outputs), the margins as coefficients of the output.
        subproblems: the batch.
        ascent: how slopes and multipliers are optimised.
        out_of_time: stop as soon as this says yes.
    """
    restricted, splits = apply_splits(network, subproblems)
    relaxed = restricted.relaxed()
    inherited = _inherited(subproblems, network.box.lower.dtype)
    query = BoundQuery(network.output, margin_functions(margins, subproblems), slopes=Slopes(inherited))
    best = optimise(relaxed, query, ascent, splits, enough=0.0, out_of_time=out_of_time, with_trail=True)
    assert best.trail.on_input is not None
    minimiser = torch.where(best.trail.on_input > 0, restricted.box.lower, restricted.box.upper).detach()
    behind = {position: coefficients.detach() for position, coefficients in best.trail.behind.items()}
    final = replace(query, slopes=best.slopes, multipliers=splits.multipliers(len(query), restricted))
    return BoundedBatch(best.lower, best.value, minimiser, behind, relaxed, final, splits)


def apply_splits(network: BoundedNetwork, subproblems: Sequence[Subproblem]) -> tuple[BoundedNetwork, Splits]:
    """The inner bounds of each subproblem's property with its splits applied: row i is subproblem i."""
    device = network.box.lower.device
    owner = torch.tensor([subproblem.owner for subproblem in subproblems], device=device)
    splits = gather_splits(subproblems, device, network.box.lower.dtype)
    bounds = {}
    for position, known in network.bounds.items():
        lower, upper = known.lower[owner], known.upper[owner]
        if position in splits.index:
            row, element = splits.index[position]
            positive, at = splits.sign[position] > 0, splits.at[position]
            above, below = (row[positive], element[positive]), (row[~positive], element[~positive])
            flat_lower, flat_upper = lower.flatten(1), upper.flatten(1)
            flat_lower[above] = torch.maximum(flat_lower[above], at[positive])
            flat_upper[below] = torch.minimum(flat_upper[below], at[~positive])
        bounds[position] = Interval(lower, upper)
    return replace(network.of_properties(owner), bounds=bounds), splits


def gather_splits(subproblems: Sequence[Subproblem], device: torch.device, dtype: torch.dtype) -> Splits:
    """All splits of a batch, by ReLU layer."""
    by_position: dict[int, list[tuple[int, int, int, float, float]]] = {}
    for row, subproblem in enumerate(subproblems):
        for position, element, sign, beta, at in subproblem.splits:
            by_position.setdefault(position, []).append((row, element, sign, beta, at))
    index, signs, betas, places = {}, {}, {}, {}
    for position, entries in by_position.items():
        rows, elements, sides, multipliers, ats = zip(*entries, strict=True)
        index[position] = (torch.tensor(rows, device=device), torch.tensor(elements, device=device))
        signs[position] = torch.tensor(sides, device=device, dtype=dtype)
        betas[position] = torch.tensor(multipliers, device=device, dtype=dtype).requires_grad_()
        places[position] = torch.tensor(ats, device=device, dtype=dtype)
    return Splits(index, signs, betas, places)


def margin_functions(margins: Tensor, subproblems: Sequence[Subproblem]) -> LinearFunctions:
    """The margin of each subproblem as a function of the output; ``margins`` is (properties, margins, outputs)."""
    owner = torch.tensor([subproblem.owner for subproblem in subproblems], device=margins.device)
    margin = torch.tensor([subproblem.margin for subproblem in subproblems], device=margins.device)
    return LinearFunctions(margins[owner, margin])


def _inherited(subproblems: Sequence[Subproblem], dtype: torch.dtype) -> dict[int, Tensor]:
    """The slopes that the parents ended with, as a batch; none if some subproblem has none."""
    first = subproblems[0].slopes
    if not all(subproblem.slopes.keys() == first.keys() for subproblem in subproblems):
        return {}
    return {
        position: torch.stack([subproblem.slopes[position] for subproblem in subproblems]).to(dtype)
        for position in first
    }
