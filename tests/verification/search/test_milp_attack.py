"""The mixed-integer program as an attack: what is taken from it, and when it is asked at all."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadynet.graph.rounding import Arithmetic
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.search import milp_attack
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.milp_attack import attack_by_milp
from steadynet.verification.search.milp_model import MilpModel
from steadynet.verification.search.property_batch import PropertyBatch, SearchState
from steadynet.verification.search.root_bounds import bound_margins

BUDGET = Budget(timeout=60.0, attack_steps=0, restarts=0, batch=16, memory=2**28)


def spike() -> nn.Sequential:
    """Class 1 beats class 0 only within 0.001 of x = 0.7: the hat 0.01 − 10·|x − 0.7| against 0."""
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    values = ([[1.0], [-1.0]], [-0.7, 0.7], [[0.0, 0.0], [-10.0, -10.0]], [0.0, 0.01])
    for parameter, value in zip(network.parameters(), values, strict=True):
        parameter.data = torch.tensor(value)
    return network.requires_grad_(False)


@pytest.fixture
def started() -> tuple[SearchState, Decisions, dict[int, Result]]:
    results: dict[int, Result] = {}
    properties = Properties.around(spike(), torch.tensor([[0.5]]), torch.tensor([0]), 0.4)
    decisions = Decisions(properties, BUDGET, results.__setitem__)
    with torch.no_grad():
        state = bound_margins(PropertyBatch.of(properties, BUDGET, Arithmetic.FLOAT32), decisions)
    assert state is not None
    return state, decisions, results


def test_a_thin_spike_is_found(started, monkeypatch):
    state, decisions, results = started
    monkeypatch.setattr(milp_attack, "LEAST_SECONDS", 30.0)  # on a busy machine, the program may take a while
    attack_by_milp(state, decisions)
    assert results[0].verdict is Verdict.SAT
    assert results[0].decided_by == "mixed-integer program"
    assert float(results[0].counterexample) == pytest.approx(0.7, abs=1e-3)


def test_larger_networks_are_not_handed_over(started, monkeypatch):
    state, decisions, results = started
    monkeypatch.setattr(milp_attack, "MOST_UNSTABLE", 1)  # the spike has two unstable ReLUs
    attack_by_milp(state, decisions)
    monkeypatch.setattr(milp_attack, "MOST_UNSTABLE", 64)
    monkeypatch.setattr(milp_attack, "MOST_INPUTS", 0)
    attack_by_milp(state, decisions)
    assert not results
    assert decisions.open == {0}


def test_a_point_that_does_not_replay_is_not_taken(started, monkeypatch):
    state, decisions, results = started
    attempt = MilpModel.attempt

    def elsewhere(self, form, *limits):
        found = attempt(self, form, *limits)
        return found._replace(point=torch.tensor([0.2], dtype=torch.float64))

    monkeypatch.setattr(MilpModel, "attempt", elsewhere)
    attack_by_milp(state, decisions)
    assert not results
