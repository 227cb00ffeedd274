"""The short form of the soundness suite, and special networks that verifiers could get wrong."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import soundness
from steadynet.attacks.pgd import find_counterexamples
from steadynet.errors import UserError
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.search.milp_model import MilpModel
from steadynet.verification.search.milp_solver import Minimum
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound

# Which random networks of a kind are tried: some others take the search many seconds, too long for a busy machine.
TURNS = {"max pool": (0, 4, 5, 7), "on zero": (1, 2, 3, 4, 5), "thin margin": (0, 1, 2, 4, 5, 6)}
TURNS |= {kind: tuple(range(4)) for kind in ("convolutional", "residual", "needle")}
OTHER_TURNS = tuple(range(7))


@pytest.mark.parametrize("kind", range(len(soundness.KINDS)), ids=soundness.KINDS)
def test_search_and_milp_never_contradict_each_other(kind):
    for turn in TURNS.get(soundness.KINDS[kind], OTHER_TURNS):
        case = soundness.make(10_000 * len(soundness.KINDS) + kind + turn * len(soundness.KINDS))
        _, wrong = soundness.check(case, soundness.verifiers())
        assert not wrong, f"seed {case.seed}: {wrong}"


def test_a_planted_counterexample_that_pgd_does_not_find_is_found():
    missed = 0
    for turn in range(4):
        torch.manual_seed(turn)
        case = soundness.needle(turn)
        properties = case.properties()
        found, _ = find_counterexamples(case.network, case.images, case.labels, properties.region, steps=50, restarts=3)
        missed += int((~found).sum())
        for verifier in soundness.verifiers().values():
            assert [result.verdict for result in verifier(properties)] == [Verdict.SAT] * len(properties)
    assert missed > 4


def test_a_mixed_integer_program_finds_the_needle_and_its_proofs_are_not_used(monkeypatch):
    case, minima = soundness.needle(1), []
    attempt = MilpModel.attempt

    def lie(self, form, *limits):
        minima.append(attempt(self, form, *limits))
        return Minimum(float("inf"), None, True)  # HiGHS has called programs infeasible that are not

    decided_by = {result.decided_by for result in BranchAndBound()(case.properties())}
    assert "mixed-integer program" in decided_by
    monkeypatch.setattr(MilpModel, "attempt", lie)
    assert {result.verdict for result in BranchAndBound()(case.properties())} == {Verdict.SAT}
    assert minima


def test_a_batch_gets_the_verdicts_of_its_properties_one_at_a_time():
    for seed in range(0, 3 * len(soundness.KINDS), 3):
        properties = soundness.make(seed).properties()
        for verifier in soundness.verifiers().values():
            together = [result.verdict for result in verifier(properties)]
            alone = [verifier(properties[index : index + 1])[0].verdict for index in range(len(properties))]
            assert together == alone, f"seed {seed}"


@pytest.mark.parametrize("label", [0, 1])
def test_a_tie_is_never_proved(label):
    network = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    nn.init.zeros_(network[2].weight)
    nn.init.zeros_(network[2].bias)
    properties = Properties.around(network, torch.rand(2, 2), torch.full((2,), label), 0.1)
    for verifier in soundness.verifiers().values():
        for result in verifier(properties):
            assert result.verdict == Verdict.SAT if label else soundness.TIE in result.reason


def test_a_margin_that_float32_cannot_see_is_never_proved():
    # y₁ − y₀ = 1e-7 + a little, with scores of about 8, whose neighbours in float32 lie 1e-6 apart
    network = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    for parameter, value in zip(network.parameters(), ([[1.0]], [0.0], [[8.0], [8.0]], [0.0, 1e-7]), strict=True):
        parameter.data = torch.tensor(value)
    properties = Properties.around(network, torch.tensor([[0.001]]), torch.tensor([1]), 1.0)
    for verifier in soundness.verifiers().values():
        assert verifier(properties)[0].verdict != Verdict.UNSAT


@pytest.mark.parametrize("weight", [1e30, torch.inf, torch.nan])
def test_what_overflows_is_refused(weight):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    network[0].weight.data[0] = weight
    network[2].weight.data[0] = 1e20
    with pytest.raises(UserError, match="NaN or infinite"):
        Properties.around(network, torch.rand(3, 2), torch.tensor([0, 1, 0]), 0.3)
