"""Bounds of a batch of subproblems, of many properties at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import Backward, Relaxation, Rows, Slopes, Trail
from steadynet.bounds.optimised import Ascent, Splits, optimise
from steadynet.graph.operations import Interval
from steadynet.verification.search.subproblem import Subproblem


@dataclass
class Bounded:
    """A batch after bounding: lower bounds, and what branching and children need to know."""

    lower: Tensor  # (n,)
    minimiser: Tensor  # (n, *image): the corner of the box where the bound is attained
    behind: dict[int, Tensor]  # coefficients behind each rectifier
    bounds: dict[int, Interval]  # each rectifier's input, with the splits applied
    relaxations: dict[int, Relaxation]
    slopes: Slopes
    splits: Splits
    backward: Backward

    def restricted(self, rows: Tensor) -> Bounded:
        """The same for some rows of the batch."""
        backward = self.backward.of_properties(rows)
        return Bounded(
            self.lower[rows],
            self.minimiser[rows],
            {position: value[rows] for position, value in self.behind.items()},
            backward.bounds,
            {relu: backward.relaxation(relu) for relu in backward.graph.relus},
            self.slopes.restricted(rows),
            self.splits.restricted(rows),
            backward,
        )


def assemble(root: Backward, subproblems: Sequence[Subproblem]) -> tuple[Backward, Splits]:
    """The root's bounds with each subproblem's splits applied: row i is subproblem i."""
    device = root.box.lower.device
    owner = torch.tensor([subproblem.owner for subproblem in subproblems], device=device)
    box = Interval(root.box.lower[owner], root.box.upper[owner])
    splits = gather_splits(subproblems, device, root.box.lower.dtype)
    bounds = {}
    for position, known in root.bounds.items():
        lower, upper = known.lower[owner], known.upper[owner]
        if position in splits.index:
            row, element = splits.index[position]
            positive = splits.sign[position] > 0
            flat_lower, flat_upper = lower.flatten(1), upper.flatten(1)
            flat_lower[row[positive], element[positive]] = flat_lower[row[positive], element[positive]].clamp_min(0)
            flat_upper[row[~positive], element[~positive]] = flat_upper[row[~positive], element[~positive]].clamp_max(0)
        bounds[position] = Interval(lower, upper)
    return replace(root, box=box, bounds=bounds), splits


def gather_splits(subproblems: Sequence[Subproblem], device: torch.device, dtype: torch.dtype) -> Splits:
    """All splits of a batch, by rectifier."""
    by_position: dict[int, list[tuple[int, int, int, float]]] = {}
    for row, subproblem in enumerate(subproblems):
        for position, element, sign, beta in subproblem.splits:
            by_position.setdefault(position, []).append((row, element, sign, beta))
    index, signs, betas = {}, {}, {}
    for position, entries in by_position.items():
        rows, elements, sides, multipliers = zip(*entries, strict=True)
        index[position] = (torch.tensor(rows, device=device), torch.tensor(elements, device=device))
        signs[position] = torch.tensor(sides, device=device, dtype=dtype)
        betas[position] = torch.tensor(multipliers, device=device, dtype=dtype).requires_grad_()
    return Splits(index, signs, betas)


def margins(targets: Tensor, subproblems: Sequence[Subproblem]) -> Rows:
    """The margin rows (n, outputs) of a batch; ``targets`` is (properties, margins, outputs)."""
    owner = torch.tensor([subproblem.owner for subproblem in subproblems], device=targets.device)
    target = torch.tensor([subproblem.target for subproblem in subproblems], device=targets.device)
    return Rows(targets[owner, target])


def bound(
    root: Backward,
    targets: Tensor,
    subproblems: Sequence[Subproblem],
    ascent: Ascent,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Bounded:
    """Lower bounds of a batch by optimised slopes and multipliers, from where the parents ended."""
    backward, splits = assemble(root, subproblems)
    relaxations = {relu: backward.relaxation(relu) for relu in backward.graph.relus}
    slopes = Slopes(_inherited(subproblems))
    trail = Trail()
    lower = optimise(
        backward,
        root.graph.output,
        margins(targets, subproblems),
        None,
        relaxations,
        ascent,
        slopes=slopes,
        splits=splits if splits.index else None,
        enough=0.0,
        trail=trail,
        out_of_time=out_of_time,
    )
    assert trail.on_input is not None
    minimiser = torch.where(trail.on_input > 0, backward.box.lower, backward.box.upper).detach()
    behind = {position: coefficients.detach() for position, coefficients in trail.behind.items()}
    return Bounded(lower, minimiser, behind, backward.bounds, relaxations, slopes, splits, backward)


def _inherited(subproblems: Sequence[Subproblem]) -> dict[int, Tensor]:
    first = subproblems[0].slopes
    if not all(subproblem.slopes.keys() == first.keys() for subproblem in subproblems):
        return {}
    return {
        position: torch.stack([subproblem.slopes[position] for subproblem in subproblems]).float() for position in first
    }
