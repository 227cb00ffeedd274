"""Leaves: counterexamples so narrow that the minimiser must be exact, and rounded with care."""

from __future__ import annotations

import pytest
import torch

from steadynet.verification.properties import Verdict
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
