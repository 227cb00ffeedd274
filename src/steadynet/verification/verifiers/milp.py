"""The exact mixed-integer program, solved by HiGHS: for small networks, and to check other verifiers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.attacks.pgd import misclassified
from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.crown import OutOfTimeError, propagate
from steadynet.bounds.layer_bounds import stable_share
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.precision import graph_in_float64, on_cpu
from steadynet.bounds.queries import BoundQuery
from steadynet.devices import full_precision, plain_convolutions
from steadynet.graph.operations import Interval
from steadynet.graph.piecewise_linear import require_piecewise_linear
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.plugins import setting
from steadynet.verification.properties import (
    DecidedBy,
    Guarantee,
    Properties,
    Reason,
    Result,
    Verdict,
    is_counterexample,
)
from steadynet.verification.search.milp_model import ZERO_SHARE, MilpModel
from steadynet.verification.search.property_batch import robustness_margins
from steadynet.verification.verifiers.base import Verifier


@dataclass(frozen=True, kw_only=True)
class Milp(Verifier):
    """One mixed-integer program per margin, with a binary variable for each ReLU that CROWN leaves unstable."""

    name = "milp"
    summary = "exact mixed-integer program (HiGHS), one margin at a time; for small networks"

    memory: int = setting(512, "MiB that a backward pass may take")

    def verify(self, properties: Properties, on_result: Callable[[int, Result], None]) -> None:
        """Decide one property after another; one that breaks is an error, and the others go on."""
        precision = full_precision(properties.images.device), plain_convolutions()
        with precision[0], precision[1], torch.no_grad(), evaluation_mode(properties.network):
            last = time.perf_counter()
            for index in range(len(properties)):
                try:
                    decision = _Decision(properties[index : index + 1], last + self.timeout, self.memory * 2**20)
                    result = decision.decide()
                except OutOfTimeError:
                    result = Result(Verdict.TIMEOUT, 0.0, decided_by=DecidedBy.TIMEOUT)
                except Exception as error:  # whatever broke, the other properties go on
                    result = Result(Verdict.ERROR, 0.0, reason=f"{type(error).__name__}: {error}")
                now = time.perf_counter()
                # a program that would have taken too long to set up counts as long as its time-out
                least = self.timeout if result.verdict is Verdict.TIMEOUT else 0.0
                on_result(index, _with_seconds(result, max(now - last, least)))
                last = now


def _with_seconds(result: Result, seconds: float) -> Result:
    return replace(result, seconds=seconds)


class _Decision:
    """One property (``asked`` holds just that one) on its way to a verdict, which must come before ``end``."""

    def __init__(self, asked: Properties, end: float, memory: int) -> None:
        self.asked, self.end, self.memory = asked, end, memory
        self.stable: float | None = None

    def left(self) -> float:
        """Seconds left."""
        return self.end - time.perf_counter()

    def decide(self) -> Result:
        """Check the image, then minimise the margins that CROWN does not prove, the worst one first."""
        asked = self.asked
        if bool(misclassified(asked.network, asked.images, asked.labels)):
            refuted = self._refuted(asked.images[0], DecidedBy.MISCLASSIFIED)
            if refuted is not None:
                return refuted
        network = self._bounds()
        targets = robustness_margins(asked)[0].double()
        owner = torch.zeros(len(targets), dtype=torch.long, device=targets.device)
        found = network.relaxed().lower(BoundQuery(network.output, LinearFunctions(targets), owner))
        rounding = 0.0 if found.error is None else float(found.error.max())
        lower, proved = found.value, found.proved > 0
        if bool(proved.all()):
            proof = self._result(Verdict.UNSAT, margin=float(lower.min()), by=DecidedBy.CROWN)
            return replace(proof, guarantee=Guarantee.CHECKED)  # without a program
        if not math.isfinite(rounding):
            return self._result(Verdict.UNKNOWN, reason=Reason.OVERFLOW)
        model = MilpModel(on_cpu(network), out_of_time=lambda: self.left() <= 0)
        worst_first = [margin for margin in lower.argsort().tolist() if not proved[margin]]
        return self._minimise(model, targets[worst_first], rounding)

    def _minimise(self, model: MilpModel, targets: Tensor, rounding: float) -> Result:
        """Minimise each margin: a counterexample, a proof, or zero to within what HiGHS and float32 can tell."""
        doubtful, proved = False, float("inf")
        for margin in targets:
            form = model.margin(margin)
            least = max(ZERO_SHARE * model.size(form), rounding)
            for target in (-100 * least, -float("inf")):  # a clear counterexample if there is one, else the smallest
                found = model.minimise(form, self.left(), 2 * least, target)
                refuted = self._tried(found.point)
                if refuted is not None:
                    return refuted
                if not found.finished or found.lower == float("inf"):  # every input satisfies the program
                    raise OutOfTimeError if self.left() <= 0 else RuntimeError("HiGHS found no answer")
                if found.lower > target:
                    break
            proved = min(proved, found.lower, 2 * least)
            if not found.lower > least:
                doubtful = True
        if doubtful:
            return self._result(Verdict.UNKNOWN, reason=Reason.ZERO_MARGIN)
        return self._result(Verdict.UNSAT, margin=proved)

    def _bounds(self) -> BoundedNetwork:
        region = self.asked.region
        graph = graph_in_float64(graph_of(self.asked.network, tuple(region.lower.shape[1:])))
        require_piecewise_linear(graph, Milp.name)
        box = Interval(region.lower.double(), region.upper.double())
        execution = Execution(Arithmetic.FLOAT32, region.lower.dtype)
        network, _ = propagate(graph, box, self.memory, lambda: self.left() <= 0, execution=execution)
        if network.relus():
            self.stable = float(stable_share(network.relus()))
        return network

    def _tried(self, point: Tensor | None) -> Result | None:
        if point is None:
            return None
        region = self.asked.region
        return self._refuted(region.project(point[None].to(region.lower))[0], DecidedBy.MILP)

    def _refuted(self, point: Tensor, by: DecidedBy) -> Result | None:
        if not is_counterexample(self.asked, 0, point):
            return None
        return self._result(Verdict.SAT, point=point.clone(), by=by)

    def _result(
        self,
        verdict: Verdict,
        *,
        point: Tensor | None = None,
        margin: float | None = None,
        reason: str = "",
        by: DecidedBy = DecidedBy.MILP,
    ) -> Result:
        method = None if self.stable is None else "crown"
        result = Result(verdict, 0.0, point, margin, self.stable, method, decided_by=by, reason=reason)
        if verdict is not Verdict.UNSAT:
            return result
        return replace(result, arithmetic=Arithmetic.FLOAT32, guarantee=Guarantee.SOLVER)
