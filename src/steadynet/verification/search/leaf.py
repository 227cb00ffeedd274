"""A subproblem with every ReLU fixed is a linear program: HiGHS solves it, and a backward pass checks its multipliers.

HiGHS works within tolerances, so its word is not taken for a proof. Its dual multipliers λ ≥ 0 of the splits become the
multipliers β of a backward pass: the bound min over the box of margin − Σ λ·sign·z holds by weak duality for any
λ ≥ 0, and the pass counts every rounding. Where HiGHS calls a leaf empty, its dual ray does the same: added often
enough, it lifts the bound above zero.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import NamedTuple

import highspy
import numpy as np
import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.optimised import Splits
from steadynet.bounds.queries import BoundQuery, Trail
from steadynet.graph.operations import Interval
from steadynet.verification.search.bounding import apply_splits
from steadynet.verification.search.subproblem import Split, Subproblem

_SLACK = 1e-6  # constraints are loosened by this much before HiGHS may call them infeasible
_RAY_LENGTHS = (1.0, 1e2, 1e4, 1e6)  # how often the ray of an empty leaf is added, in units of the margin's size


class Settled(NamedTuple):
    """What is known of the margin on a leaf.

    Attributes:
        lower: a proved lower bound, with every rounding counted.
        point: the input where HiGHS finds the smallest margin; the centre of the box for an empty leaf.
        splits: the splits with the multipliers that prove the bound.
    """

    lower: float
    point: Tensor
    splits: tuple[Split, ...] = ()


class _Solution(NamedTuple):
    """HiGHS' answer: its minimiser, and candidates for the multipliers of the constraints (n, constraints).

    Where HiGHS calls the leaf empty, the point is the centre of the box.
    """

    point: Tensor
    multipliers: Tensor
    empty: bool = False


def settle(network: BoundedNetwork, margin: Tensor, leaf: Subproblem, seconds: float) -> Settled | None:
    """Find the smallest margin on a leaf, and prove a lower bound of it.

    Args:
        network: the network over the box of the leaf's property alone, in float64 on the CPU.
        margin: (outputs,), the margin as coefficients of the output.
        leaf: the subproblem; every ReLU is fixed by a split or by the inner bounds.
        seconds: how long HiGHS may take.

    Returns:
        What is known, or None if HiGHS found no answer in its time.
    """
    fixed, splits = apply_splits(network, [replace(leaf, owner=0)])
    linear = replace(fixed, rounding=None)  # the program itself needs no proof
    forms = [_linear_form(linear, network.output, margin.to(fixed.box.lower)[None])]
    for position, (_, elements) in splits.index.items():
        source = network.graph.source(position)
        shape = network.shapes[source]
        picked = torch.zeros(len(elements), torch.Size(shape).numel(), dtype=torch.float64, device="cpu")
        picked[torch.arange(len(elements), device="cpu"), elements] = splits.sign[position]
        forms.append(_linear_form(linear, source, picked.view(len(elements), *shape)))
    coefficients, constants = (torch.cat(parts) for parts in zip(*forms, strict=True))
    if not bool(coefficients.isfinite().all() & constants.isfinite().all()):  # HiGHS would not end
        return Settled(-math.inf, ((fixed.box.lower + fixed.box.upper) / 2)[0])
    started = time.monotonic()
    solution = _solve(coefficients, constants, _flat(fixed.box), seconds, _SLACK)
    if solution is None:
        return None
    tried = [(_proved(fixed, margin, splits, weights), weights) for weights in solution.multipliers]
    if not max(lower for lower, _ in tried) > 0:
        # No proof, so look for a counterexample: the minimiser of the leaf as it is, which may be very narrow.
        exact = _solve(coefficients, constants, _flat(fixed.box), seconds - (time.monotonic() - started), 0.0)
        if exact is not None and not exact.empty:
            solution = exact
            tried += [(_proved(fixed, margin, splits, weights), weights) for weights in exact.multipliers]
    lower, weights = max(tried, key=lambda pair: pair[0])
    return Settled(lower, solution.point.view(network.shapes[0]), _with_multipliers(splits, weights))


def _with_multipliers(splits: Splits, weights: Tensor) -> tuple[Split, ...]:
    found, left = [], iter(weights.tolist())
    for position, (_, elements) in splits.index.items():
        for element, sign in zip(elements.tolist(), splits.sign[position].tolist(), strict=True):
            found.append(Split(position, element, int(sign), next(left)))
    return tuple(found)


def _linear_form(network: BoundedNetwork, position: int, functions: Tensor) -> tuple[Tensor, Tensor]:
    """Functions of a value as coefficients (n, inputs) and constants (n,) on the input: exact for fixed ReLUs."""
    owner, trail = torch.zeros(len(functions), dtype=torch.long, device="cpu"), Trail()
    with torch.no_grad():
        query = BoundQuery(position, LinearFunctions(functions), owner)
        lower = network.relaxed(position).lower(query, trail).value
    coefficients = torch.zeros(len(functions), network.box.lower[0].numel(), dtype=torch.float64, device="cpu")
    if trail.on_input is not None:
        coefficients = trail.on_input.flatten(1)
    box = _flat(network.box)
    smallest = (coefficients * (box.lower + box.upper) / 2 - coefficients.abs() * (box.upper - box.lower) / 2).sum(1)
    return coefficients, lower - smallest


def _flat(box: Interval) -> Interval:
    return Interval(box.lower[0].flatten(), box.upper[0].flatten())


def _proved(network: BoundedNetwork, margin: Tensor, splits: Splits, weights: Tensor) -> float:
    """The bound of the margin that a backward pass proves with these multipliers of the splits (constraints,)."""
    counts = [len(elements) for _, elements in splits.index.values()]
    beta = dict(zip(splits.index, weights.split(counts), strict=True))
    multipliers = Splits(splits.index, splits.sign, beta).multipliers(1, network)
    query = BoundQuery(
        network.output, LinearFunctions(margin.to(network.box.lower)[None]), None, multipliers=multipliers
    )
    with torch.no_grad():
        return float(network.relaxed().lower(query).proved)


def _solve(coefficients: Tensor, constants: Tensor, box: Interval, seconds: float, slack: float) -> _Solution | None:
    """Minimise the first form over the box, where all others are at least 0, or −slack times their size."""
    # Rows of very different sizes are out of reach of HiGHS' absolute tolerances: each is scaled to size 1.
    size = (coefficients.abs() * torch.maximum(box.lower.abs(), box.upper.abs())).sum(1) + constants.abs()
    scale = torch.where(size > 0, size, 1.0)
    entries, shifts = (coefficients / scale[:, None]).numpy(), (constants / scale).numpy()
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("presolve", "off")  # it has been wrong about infeasibility, and gives no ray
    solver.setOptionValue("time_limit", max(seconds, 0.01))
    solver.setOptionValue("primal_feasibility_tolerance", 1e-10)  # the smallest that HiGHS takes
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = entries.shape[1], len(entries) - 1
    program.col_cost_ = entries[0]
    program.col_lower_, program.col_upper_ = box.lower.numpy(), box.upper.numpy()
    program.row_lower_ = -shifts[1:] - slack
    program.row_upper_ = np.full(program.num_row_, np.inf)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    row, column = entries[1:].nonzero()
    program.a_matrix_.start_ = np.searchsorted(row, np.arange(program.num_row_ + 1))
    program.a_matrix_.index_, program.a_matrix_.value_ = column, entries[1:][row, column]
    solver.passModel(program)
    solver.run()
    status = solver.getModelStatus()
    per_unit = scale[0] / scale[1:]  # multipliers of the rows as they were, for the margin as it was
    if status == highspy.HighsModelStatus.kInfeasible:
        found = solver.getDualRay()[2]  # type: ignore[attr-defined]
        ray = torch.from_numpy(np.zeros(program.num_row_) if found is None else np.array(found))
        lengths = torch.tensor(_RAY_LENGTHS, dtype=torch.float64, device="cpu")[:, None]
        return _Solution((box.lower + box.upper) / 2, lengths * ray.clamp_min(0) * per_unit, empty=True)
    if status != highspy.HighsModelStatus.kOptimal:
        return None
    solution = solver.getSolution()
    duals = torch.from_numpy(np.array(solution.row_dual)).clamp_min(0) * per_unit
    point = torch.from_numpy(np.array(solution.col_value))
    return _Solution(torch.minimum(torch.maximum(point, box.lower), box.upper), duals[None])
