"""Halving boxes: the verdicts of the other searches, on networks small enough for those."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import soundness
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.search import input_splitting, part_bounds, pipeline
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound


@pytest.fixture
def always(monkeypatch):
    """Even a box with one unstable ReLU is halved."""
    monkeypatch.setattr(input_splitting, "LEAST_UNSTABLE", 1)


@pytest.mark.parametrize("kind", range(len(soundness.KINDS)), ids=soundness.KINDS)
def test_halving_never_contradicts_milp_nor_sampling(kind, always):
    for turn in range(3):
        case = soundness.make(20_000 * len(soundness.KINDS) + kind + turn * len(soundness.KINDS))
        _, wrong = soundness.check(case, soundness.verifiers())
        assert not wrong, f"seed {case.seed}: {wrong}"


def wide() -> nn.Module:
    """Random weights, three times as large as usual: every label occurs."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3))
    for layer in (network[0], network[2], network[4]):
        layer.weight.data *= 3
    network[4].bias.data -= network(torch.rand(500, 5)).detach().mean(0)
    return network


def test_few_inputs_and_many_relus_are_decided_by_halving(monkeypatch):
    network = wide()
    images = torch.rand(12, 5)
    properties = Properties.around(network, images, network(images).argmax(1), 0.2)
    found = BranchAndBound(timeout=30)(properties)
    assert "halved boxes" in {result.decided_by for result in found}
    monkeypatch.setattr(input_splitting, "MOST_INPUTS", 0)
    other = BranchAndBound(timeout=30)(properties)
    assert [result.verdict for result in found] == [result.verdict for result in other]
    assert {Verdict.UNSAT, Verdict.SAT} == {result.verdict for result in found}


def test_a_tie_is_given_up_and_left_to_the_linear_program(always):
    """The label and the other class have the same score on a line through the box: no halving ever ends."""
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    network[0].weight.data, network[0].bias.data = torch.tensor([[1.0], [-1.0]]), torch.tensor([-0.5, 0.5])
    network[2].weight.data, network[2].bias.data = torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.zeros(2)
    (result,) = BranchAndBound(timeout=20)(Properties.around(network, torch.tensor([[0.6]]), torch.tensor([0]), 0.3))
    assert result.verdict is Verdict.UNKNOWN
    assert soundness.TIE in result.reason
    assert result.seconds < 10


def test_halving_that_leads_nowhere_is_given_up_at_half_time(monkeypatch):
    network = wide()
    properties = Properties.around(network, torch.rand(1, 5), torch.tensor([0]), 0.5)
    nothing_proved = lambda relaxed, query, lower, value: lower.clamp_max(-1.0)  # noqa: E731
    monkeypatch.setattr(part_bounds, "confirmed", nothing_proved)
    monkeypatch.setattr(input_splitting.InputSplitting, "_try", lambda self, owner, points: None)
    monkeypatch.setattr(pipeline, "attack_margins", lambda state, decisions: state)
    monkeypatch.setattr(pipeline, "check_images", lambda batch, decisions: None)
    run, took = input_splitting.InputSplitting.run, []

    def timed(self):
        begun = time.perf_counter()
        run(self)
        took.append(time.perf_counter() - begun)

    monkeypatch.setattr(input_splitting.InputSplitting, "run", timed)
    (result,) = BranchAndBound(timeout=2)(properties)
    assert result.decided_by != "halved boxes"
    assert took[0] < 1.6
