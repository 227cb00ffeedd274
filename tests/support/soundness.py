"""Random small networks decided by the search and by MILP: no contradiction, every verdict checked by force.

``long_soundness.py`` runs it on thousands of networks (``make soundness``).
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from random_networks import KINDS, UNUSUAL, Case, attacked, make, needle
from steadynet.verification.properties import Properties, Result, Verdict, is_counterexample
from steadynet.verification.verifiers.base import Verifier
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound
from steadynet.verification.verifiers.milp import Milp

__all__ = ["KINDS", "TIE", "UNUSUAL", "check", "make", "needle", "verifiers"]
torch.set_num_threads(1)
TIE = "zero to within rounding"  # the one reason for which a small property may stay undecided


def points_of(properties: Properties, index: int) -> Tensor:
    """Points of a box: corners, random ones, mixtures, and the ends of strong descents on every margin."""
    region = properties.region[index : index + 1]
    lower, upper = region.lower.flatten(), region.upper.flatten()
    size = len(lower)
    bits = torch.tensor(list(itertools.product([0, 1], repeat=size))) if size <= 8 else torch.rand(400, size).round()
    inner = torch.rand(1500, size)
    mixed = torch.where(torch.rand(500, size) < 0.5, torch.rand(500, size), torch.rand(500, size).round())
    weights = torch.cat([bits.float(), inner, mixed])
    points = torch.where(weights == 1, upper, torch.where(weights == 0, lower, lower + weights * (upper - lower)))
    points = torch.minimum(torch.maximum(points, lower), upper).view(-1, *region.lower.shape[1:])
    return torch.cat([points, attacked(properties, index, points[torch.randperm(len(points))[:40]])])


def complaints(case: Case, results: dict[str, list[Result]], in_time: bool = True) -> list[str]:
    """Everything that is wrong with the verdicts on a case; with ``in_time``, the search must not time out either."""
    properties, wrong = case.properties(), []
    for index in range(len(properties)):
        mine = {name: of_all[index] for name, of_all in results.items()}
        verdicts = {result.verdict for result in mine.values()}
        if {Verdict.SAT, Verdict.UNSAT} <= verdicts:
            wrong.append(f"image {index}: {mine} contradict each other")
        if Verdict.UNSAT in verdicts and (case.refutable or sampled(properties, index)):
            wrong.append(f"image {index}: unsat, but there is a counterexample: {mine}")
        for name, result in mine.items():
            # no split helps a tie; a program may be slow
            may_be_late = not in_time or case.kind == "thin margin" or name == "milp"
            is_late = may_be_late and result.verdict == Verdict.TIMEOUT
            found = [] if is_late else _of_one(properties, index, result)
            wrong += [f"image {index}: {name}: {what}" for what in found]
    return wrong


def sampled(properties: Properties, index: int) -> bool:
    """Whether sampling finds a counterexample."""
    points = points_of(properties, index)
    with torch.no_grad():
        candidates = points[properties.network(points).argmax(1) != properties.labels[index]]
    return any(is_counterexample(properties, index, point) for point in candidates)


def _of_one(properties: Properties, index: int, result: Result) -> list[str]:
    if result.verdict == Verdict.SAT:
        point = result.counterexample
        replays = point is not None and is_counterexample(properties, index, point)
        return [] if replays else ["a counterexample that does not replay"]
    decided = result.verdict == Verdict.UNSAT or TIE in result.reason
    return [] if decided else [f"{result.verdict.value}: {result.reason}"]


def check(
    case: Case, verifiers: dict[str, Verifier], in_time: bool = True
) -> tuple[dict[str, list[Result]], list[str]]:
    """Results and complaints."""
    results = {name: verifier(case.properties()) for name, verifier in verifiers.items()}
    return results, complaints(case, results, in_time)


def verifiers(timeout: float = 20.0, group: int | None = None) -> dict[str, Verifier]:
    """The two that must never contradict each other; the search with so few attacks that it has to search."""
    return {
        "branch_and_bound": BranchAndBound(timeout=timeout, restarts=1, attack_steps=5, batch=64, group=group),
        "milp": Milp(timeout=timeout),
    }
