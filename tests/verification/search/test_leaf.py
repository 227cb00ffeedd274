"""Leaves: counterexamples so narrow that the minimiser must be exact, and rounded with care."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from steadynet.bounds.crown import propagate
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of
from steadynet.verification.properties import Verdict
from steadynet.verification.search.leaf import settle
from steadynet.verification.search.subproblem import Subproblem
from steadynet.verification.self_test.known import Truth
from steadynet.verification.self_test.spikes import FAMILY
from steadynet.verification.self_test.torch_instance import NetworkInstance
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound

# Each of these was left undecided while a leaf's program was loosened before its minimiser was taken.
NARROW = [("hat", 0), ("hat", 2), ("scaled hat", 2), ("scaled hat", 10), ("wedge", 0), ("wedge", 5), ("wedge", 9)]


@pytest.mark.parametrize(("kind", "seed"), NARROW)
def test_a_narrow_counterexample_is_found(kind: str, seed: int) -> None:
    torch.manual_seed(seed)
    instance = FAMILY.kinds[kind]()
    assert isinstance(instance, NetworkInstance)
    results = BranchAndBound(timeout=20)(instance.properties)
    for result, truth in zip(results, instance.truths, strict=True):
        assert result.verdict == (Verdict.SAT if truth is Truth.VIOLATED else Verdict.UNSAT)


def test_a_leaf_that_overflows_proves_nothing_and_does_not_reach_the_solver() -> None:
    """HiGHS would not end: it looks at no clock while costs are not numbers."""
    graph = graph_of(nn.Sequential(nn.Linear(2, 2)).double().requires_grad_(False), (2,))
    box = Interval(torch.zeros(1, 2).double(), torch.ones(1, 2).double())
    network, _ = propagate(graph, box, execution=Execution(Arithmetic.EXACT, torch.float64))
    for number in (torch.nan, torch.inf):
        settled = settle(network, torch.tensor([number, -number]), Subproblem(0, 0, -1.0), seconds=5.0)
        assert settled is not None
        assert settled.lower == -math.inf
        assert settled.point.tolist() == [0.5, 0.5]
