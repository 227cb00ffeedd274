"""HiGHS on a mixed-integer program that is scaled first, so that its absolute tolerances mean the same everywhere."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import highspy
import numpy as np
import torch
from torch import Tensor

from steadynet.bounds.crown import OutOfTimeError

TOLERANCE = 1e-9  # HiGHS' own, for constraints, duals and integers
SETTING_UP = 3  # times what building the model took: HiGHS looks at no clock before its first linear program is solved
SMALLEST_ENTRY = 1e-12  # of a row's largest: HiGHS drops what is smaller


class Row(NamedTuple):
    """One constraint: lower ≤ Σ entries · variables ≤ upper."""

    variables: Tensor
    entries: Tensor
    lower: float
    upper: float


class Minimum(NamedTuple):
    """What HiGHS found: a lower bound of the form (+∞ if nothing satisfies the program), and its best point if any."""

    lower: float
    point: Tensor | None
    finished: bool


@dataclass(frozen=True)
class Limits:
    """When HiGHS may stop: at a moment, at a bound above ``enough``, or at a value below ``target``."""

    end: float
    enough: float = np.inf
    target: float = -np.inf


class MixedIntegerProgram:
    """Variables between bounds, some of them binary, under linear constraints.

    Every continuous variable is measured in units of its largest value, every constraint in units of its largest
    entry, and what is minimised in units of its own size. So a layer whose weights are 10⁹ times those of the next
    one does not disappear in a tolerance.
    """

    def __init__(self, lower: Tensor, upper: Tensor, binary: Tensor, rows: list[Row]) -> None:
        self.binary, self.rows = binary, rows
        largest = torch.maximum(lower.abs(), upper.abs())
        self.unit = torch.where(binary | (largest == 0) | ~largest.isfinite(), 1.0, largest)
        self.lower, self.upper = lower / self.unit, upper / self.unit

    def size(self, form: Tensor) -> float:
        """How large the terms of a form (1 + variables,) can be."""
        largest = torch.maximum(self.lower.abs(), self.upper.abs()) * self.unit
        return float(form[0].abs() + (form[1:].abs() * largest).sum())

    def minimise(self, form: Tensor, limits: Limits, presolve: bool) -> Minimum:
        """Minimise form[0] + form[1:] · variables.

        Raises:
            OutOfTimeError: there is no time to set HiGHS up.
        """
        unit, started = self.size(form) or 1.0, time.perf_counter()
        model = self._model(form / unit)
        built = time.perf_counter()
        seconds = limits.end - built
        if seconds <= SETTING_UP * (built - started):
            raise OutOfTimeError
        solver = highspy.Highs()
        options: dict[str, bool | int | float | str] = {
            "output_flag": False, "threads": 1, "presolve": "on" if presolve else "off",
            "time_limit": seconds, "objective_target": limits.target / unit,
            "mip_rel_gap": 0.0, "mip_abs_gap": TOLERANCE, "small_matrix_value": SMALLEST_ENTRY,
            "mip_feasibility_tolerance": TOLERANCE, "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        }  # fmt: skip
        for name, value in options.items():
            solver.setOptionValue(name, value)

        def interrupt(event: Any) -> None:
            if event.data_out.mip_dual_bound * unit > limits.enough or time.perf_counter() > limits.end:
                event.data_in.user_interrupt = True

        def interrupt_program(event: Any) -> None:
            event.data_in.user_interrupt = time.perf_counter() > limits.end

        solver.cbMipInterrupt.subscribe(interrupt)
        solver.cbSimplexInterrupt.subscribe(interrupt_program)
        solver.passModel(model)
        solver.run()
        return self._minimum(solver, unit, limits.enough)

    def _minimum(self, solver: highspy.Highs, unit: float, enough: float) -> Minimum:
        status, info = solver.getModelStatus(), solver.getInfo()
        if status == highspy.HighsModelStatus.kInfeasible:
            return Minimum(np.inf, None, True)
        point = None
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            point = torch.tensor(np.array(solver.getSolution().col_value), device="cpu") * self.unit
        finished = status in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kObjectiveTarget)
        lower = float(info.mip_dual_bound) * unit
        if not bool(self.binary.any()):  # a linear program
            lower = float(info.objective_function_value) * unit if finished else -np.inf
        return Minimum(lower, point, finished or lower > enough)

    def _model(self, form: Tensor) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.lower), len(self.rows)
        model.offset_, model.col_cost_ = float(form[0]), (form[1:] * self.unit).numpy()
        model.col_lower_, model.col_upper_ = self.lower.numpy(), self.upper.numpy()
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        if bool(self.binary.any()):
            model.integrality_ = [kinds[int(kind)] for kind in self.binary]
        scaled = [self._scaled(row) for row in self.rows]
        model.row_lower_ = np.array([row.lower for row in scaled])
        model.row_upper_ = np.array([row.upper for row in scaled])
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.cumsum([0, *(len(row.variables) for row in scaled)])
        if scaled:
            model.a_matrix_.index_ = torch.cat([row.variables for row in scaled]).numpy()
            model.a_matrix_.value_ = torch.cat([row.entries for row in scaled]).numpy()
        return model

    def _scaled(self, row: Row) -> Row:
        entries = row.entries * self.unit[row.variables]
        unit = float(entries.abs().max()) if len(entries) else 1.0
        unit = unit if 0 < unit < np.inf else 1.0
        return Row(row.variables, entries / unit, row.lower / unit, row.upper / unit)
