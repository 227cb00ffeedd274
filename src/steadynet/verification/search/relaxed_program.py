"""The triangle relaxation of a condensed network as a linear program, whose duals are slopes and multipliers of a pass.

Each unstable ReLU y = relu(z) is a variable with y ≥ 0, y ≥ z and y ≤ its upper line. A split changes bounds only, so
HiGHS starts from the last basis and needs few steps for the next subproblem. By linear programming duality, the best
slopes and multipliers of a backward pass (α and β of β-CROWN) are the duals of the program: with λ₀ of y ≥ 0 and λ₁ of
y ≥ z, the slope of the lower line is λ₁ / (λ₀ + λ₁), and the multiplier of a split is λ₀ (held ≥ 0) or λ₁ (held ≤ 0).

HiGHS works within tolerances, so nothing here is a proof. A pass over the whole network with these slopes and
multipliers is one, as it is for any slopes and any multipliers ≥ 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np
import torch
from numpy.typing import NDArray

from steadynet.bounds.condensed import CondensedNetwork

Vector = NDArray[np.float64]

_RAY_LENGTHS = (1.0, 1e2, 1e4)  # how often the ray of an empty subproblem is added, in units of the margin's size


class Duals(NamedTuple):
    """Slopes of the lower lines and multipliers of the splits, one per unstable ReLU."""

    slopes: Vector
    multipliers: Vector


class Relaxed(NamedTuple):
    """What a program found.

    Attributes:
        lower: the smallest margin of the relaxation, +∞ if HiGHS calls the subproblem empty.
        duals: candidates for the slopes and multipliers that prove this bound.
        point: the input where the smallest margin is attained; None if there is none.
        before: the inputs z of the unstable ReLUs there.
        after: their values y there.
    """

    lower: float
    duals: tuple[Duals, ...]
    point: Vector | None
    before: Vector
    after: Vector


class RelaxedProgram:
    """The program of one margin of one property; splits are set and taken back by :meth:`hold`.

    Args:
        network: the condensed network of the property, in float64 on the CPU, without leaky ReLUs.
        margin: which of its margins is minimised.
    """

    def __init__(self, network: CondensedNetwork, margin: int) -> None:
        self.inputs, self.neurons = network.inputs, network.neurons
        self.cost, self.constant = network.margins[:, margin].numpy(), float(network.constants[margin])
        self.forms = np.zeros((self.neurons, self.inputs + self.neurons))  # the inputs z of the ReLUs
        self.shifts = np.zeros(self.neurons)
        for layer in network.layers:
            matrix = layer.matrix.matrix.to_dense().numpy()
            self.forms[layer.rows, : matrix.shape[1]] = matrix
            self.shifts[layer.rows] = layer.constant.numpy()
        slope, shift = (side[:, 0].numpy() for side in (network.lines.upper_slope, network.lines.upper_shift))
        self.start_slopes = network.lines.lower_slope[:, 0].numpy()
        self.ceiling = slope * self.shifts + shift
        own = np.hstack([np.zeros((self.neurons, self.inputs)), np.eye(self.neurons)])
        self.matrix = np.vstack([own - self.forms, own - slope[:, None] * self.forms])  # y − z, y − upper slope · z
        self.size = abs(self.constant) + float(np.abs(self.cost[: self.inputs]).sum()) + 1e-30
        self.held: dict[int, int] = {}
        self.solver = self._solver(network)

    def _solver(self, network: CondensedNetwork) -> highspy.Highs:
        solver = highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off"), ("simplex_strategy", 1)):
            solver.setOptionValue(option, value)
        program = highspy.HighsLp()
        low, high = (side[:, 0].numpy() for side in network.box)
        infinite = np.full(self.neurons, np.inf)
        program.num_col_, program.num_row_ = self.inputs + self.neurons, 2 * self.neurons
        program.col_cost_, program.offset_ = self.cost, self.constant
        program.col_lower_ = np.concatenate([low, np.zeros(self.neurons)])
        program.col_upper_ = np.concatenate([high, infinite])
        program.row_lower_ = np.concatenate([self.shifts, -infinite])
        program.row_upper_ = np.concatenate([infinite, self.ceiling])
        row, column = self.matrix.nonzero()
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.searchsorted(row, np.arange(program.num_row_ + 1))
        program.a_matrix_.index_, program.a_matrix_.value_ = column, self.matrix[row, column]
        solver.passModel(program)
        return solver

    def hold(self, splits: dict[int, int]) -> None:
        """Hold just these ReLUs on one side each: neuron → sign."""
        for neuron in [neuron for neuron, sign in self.held.items() if splits.get(neuron) != sign]:
            self._bounds(neuron, 0)
            del self.held[neuron]
        for neuron, sign in splits.items():
            if neuron not in self.held:
                self._bounds(neuron, sign)
                self.held[neuron] = sign

    def _bounds(self, neuron: int, sign: int) -> None:
        shift, column = float(self.shifts[neuron]), self.inputs + neuron
        self.solver.changeRowBounds(neuron, shift, shift if sign > 0 else np.inf)
        self.solver.changeRowBounds(self.neurons + neuron, -np.inf, np.inf if sign else float(self.ceiling[neuron]))
        self.solver.changeColBounds(column, 0.0, 0.0 if sign < 0 else np.inf)

    def minimise(self, seconds: float) -> Relaxed | None:
        """Minimise the margin where the splits hold; None if HiGHS found no answer in this time."""
        solver = self.solver
        solver.setOptionValue("time_limit", solver.getRunTime() + max(seconds, 0.01))
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return self._empty()
        if status != highspy.HighsModelStatus.kOptimal:
            return None
        solution = solver.getSolution()
        values, rows = np.array(solution.col_value), np.array(solution.row_dual)
        duals = self._duals(rows, np.array(solution.col_dual)[self.inputs :])
        lower = float(solver.getInfo().objective_function_value)
        return Relaxed(lower, (duals,), values[: self.inputs], self.forms @ values + self.shifts, values[self.inputs :])

    def _duals(self, rows: Vector, columns: Vector, length: float = 1.0) -> Duals:
        """Slopes and multipliers from the duals of the rows and of the bounds y ≥ 0."""
        above_zero, above_input = np.clip(columns, 0, None), np.clip(rows[: self.neurons], 0, None)
        total = above_zero + above_input
        slopes = np.where(total > 0, above_input / np.where(total > 0, total, 1.0), self.start_slopes)
        multipliers = np.zeros(self.neurons)
        for neuron, sign in self.held.items():
            multipliers[neuron] = length * (above_zero if sign > 0 else above_input)[neuron]
        return Duals(slopes, multipliers)

    def _empty(self) -> Relaxed | None:
        ray = self.solver.getDualRay()[2]  # type: ignore[attr-defined]
        if ray is None:
            return None
        rows = np.array(ray)
        columns = -(rows @ self.matrix)[self.inputs :]
        scale = self.size / max(float(np.abs(rows).max()), 1e-30)
        found = tuple(self._duals(rows, columns, scale * length) for length in _RAY_LENGTHS)
        none = np.zeros(self.neurons)
        return Relaxed(np.inf, found, None, none, none)


def stacked(duals: Sequence[Duals]) -> tuple[torch.Tensor, torch.Tensor]:
    """Slopes and multipliers of several subproblems as columns: (neurons, n) each."""
    return (
        torch.from_numpy(np.stack([entry.slopes for entry in duals], 1)),
        torch.from_numpy(np.stack([entry.multipliers for entry in duals], 1)),
    )
