"""A subproblem with every ReLU fixed is a linear program: HiGHS solves it, and its dual multipliers are checked here.

HiGHS works within tolerances, so its word is not taken for a proof. Its multipliers λ give the bound
min over the box of margin − Σ λ·sign·z, which holds by weak duality and is computed here in float64.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import highspy
import numpy as np
import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork, BoundQuery, Trail
from steadynet.bounds.crown import OutOfTimeError
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.graph.operations import Interval
from steadynet.graph.pooling import MaxPool
from steadynet.verification.search.bounding import apply_splits
from steadynet.verification.search.milp_model import ZERO_SHARE, MilpModel
from steadynet.verification.search.rounding import CLEARLY_POSITIVE
from steadynet.verification.search.subproblem import Subproblem

_SLACK = 1e-6  # constraints are loosened by this much before HiGHS may call them infeasible


class Settled(NamedTuple):
    """A proved lower bound of the margin on the leaf (+∞ where the leaf is empty), and an input that attains it."""

    lower: float
    point: Tensor
    holds_on_box: bool = False  # the bound holds on the whole box, not on the leaf alone


def settle(network: BoundedNetwork, margin: Tensor, leaf: Subproblem, seconds: float) -> Settled | None:
    """Find the smallest margin on a leaf.

    Args:
        network: the network over the box of the leaf's property alone, in float64 on the CPU.
        margin: (outputs,), the margin as coefficients of the output.
        leaf: the subproblem; every ReLU is fixed by a split or by the inner bounds.
        seconds: how long HiGHS may take.

    Returns:
        The minimum, or None if HiGHS found no answer in its time.
    """
    if any(isinstance(node.operation, MaxPool) for node in network.graph.nodes):
        return _settle_maxima(network, margin, seconds)
    fixed, splits = apply_splits(network, [replace(leaf, owner=0)])
    forms = [_linear_form(fixed, network.output, margin.to(fixed.box.lower)[None])]
    signs = [1.0]
    for position, (_, elements) in splits.index.items():
        source = network.graph.source(position)
        shape = network.shapes[source]
        picked = torch.zeros(len(elements), torch.Size(shape).numel(), dtype=torch.float64, device="cpu")
        picked[torch.arange(len(elements), device="cpu"), elements] = 1.0
        forms.append(_linear_form(fixed, source, picked.view(len(elements), *shape)))
        signs += splits.sign[position].tolist()
    sign = torch.tensor(signs, dtype=torch.float64, device="cpu")
    coefficients = torch.cat([form[0] for form in forms]) * sign[:, None]
    constants = torch.cat([form[1] for form in forms]) * sign
    return _solve(coefficients, constants, _flat(fixed.box), network.shapes[0], seconds)


def _settle_maxima(network: BoundedNetwork, margin: Tensor, seconds: float) -> Settled | None:
    """A maximum is not linear even where every ReLU is fixed: solve a mixed-integer program of the whole box."""
    end = time.perf_counter() + seconds
    try:
        model = MilpModel(network, out_of_time=lambda: time.perf_counter() >= end)
    except OutOfTimeError:
        return None
    form = model.margin(margin)
    found = model.minimise(form, end - time.perf_counter(), 2 * ZERO_SHARE * model.size(form) + CLEARLY_POSITIVE)
    if not found.finished:
        return None
    centre = (network.box.lower[0] + network.box.upper[0]) / 2
    lower = -float("inf") if found.point is None and found.lower == float("inf") else found.lower
    point = centre if found.point is None else found.point
    return Settled(lower - ZERO_SHARE * model.size(form), point, holds_on_box=True)


def _linear_form(network: BoundedNetwork, position: int, functions: Tensor) -> tuple[Tensor, Tensor]:
    """Functions of a value as coefficients (n, inputs) and constants (n,) on the input: exact for fixed ReLUs."""
    owner = torch.zeros(len(functions), dtype=torch.long, device="cpu")
    trail = Trail()
    with torch.no_grad():
        query = BoundQuery(position, LinearFunctions(functions), owner)
        lower = network.relaxed(position).lower(query, trail)
    coefficients = torch.zeros(len(functions), network.box.lower[0].numel(), dtype=torch.float64, device="cpu")
    if trail.on_input is not None:
        coefficients = trail.on_input.flatten(1)
    return coefficients, lower - _smallest(coefficients, _flat(network.box))


def _flat(box: Interval) -> Interval:
    return Interval(box.lower[0].flatten(), box.upper[0].flatten())


def _smallest(coefficients: Tensor, box: Interval) -> Tensor:
    centre, half = (box.upper + box.lower) / 2, (box.upper - box.lower) / 2
    return (coefficients * centre - coefficients.abs() * half).sum(1)


def _is_empty(ray: tuple[object, bool, np.ndarray | None], rows: Tensor, constants: Tensor, box: Interval) -> bool:
    """Whether HiGHS' ray λ ≥ 0 shows that rows · x + constants ≥ 0 holds nowhere on the box: λ · (…) < 0 there."""
    if not ray[1]:
        return False
    weights = torch.tensor(np.array(ray[2]), dtype=torch.float64, device="cpu").clamp_min(0)
    largest = -_smallest(-(weights @ rows)[None], box)[0]
    return bool(largest + weights @ constants < 0)


def _solve(
    coefficients: Tensor, constants: Tensor, box: Interval, shape: tuple[int, ...], seconds: float
) -> Settled | None:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("presolve", "off")  # it has been wrong about infeasibility, and gives no ray
    solver.setOptionValue("time_limit", max(seconds, 0.01))
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = coefficients.shape[1], len(coefficients) - 1
    program.col_cost_ = coefficients[0].numpy()
    program.col_lower_, program.col_upper_ = box.lower.numpy(), box.upper.numpy()
    scale = coefficients[1:].abs().sum(1) + constants[1:].abs() + 1
    program.row_lower_ = (-constants[1:] - _SLACK * scale).numpy()
    program.row_upper_ = np.full(program.num_row_, np.inf)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    entries = coefficients[1:].numpy()
    row, column = entries.nonzero()
    program.a_matrix_.start_ = np.searchsorted(row, np.arange(program.num_row_ + 1))
    program.a_matrix_.index_, program.a_matrix_.value_ = column, entries[row, column]
    solver.passModel(program)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        empty = _is_empty(solver.getDualRay(), coefficients[1:], constants[1:], box)  # type: ignore[attr-defined]
        return Settled(float("inf" if empty else "-inf"), ((box.lower + box.upper) / 2).view(shape))
    if status != highspy.HighsModelStatus.kOptimal:
        return None
    solution = solver.getSolution()
    duals = torch.tensor(np.array(solution.row_dual), dtype=torch.float64, device="cpu").clamp_min(0)
    combined = coefficients[0] - duals @ coefficients[1:]
    proved = float(_smallest(combined[None], box)[0] + constants[0] - duals @ constants[1:])
    point = torch.tensor(np.array(solution.col_value), dtype=torch.float64, device="cpu")
    point = torch.minimum(torch.maximum(point, box.lower), box.upper)
    return Settled(proved, point.view(shape))
