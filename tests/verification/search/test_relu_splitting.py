"""The tree of ReLU splits on networks whose minimum is known by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadynet.graph.rounding import Arithmetic
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.search import relu_splitting
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.property_batch import PropertyBatch, SearchState
from steadynet.verification.search.relu_splitting import look_at_relus, split_relus
from steadynet.verification.search.root_bounds import bound_margins

BUDGET = Budget(timeout=60.0, attack_steps=0, restarts=0, batch=16, memory=2**28)


def distance(shift: float) -> nn.Sequential:
    """Class 0 scores |d| + shift for d = x₁ − x₂, class 1 scores 0: the smallest margin is ``shift``, where d = 0.

    |d| = d + 2·relu(−d), and d = relu(d + 1) − 1, whose ReLU is always on.
    """
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    values = ([[1.0, -1.0], [-1.0, 1.0]], [1.0, 0.0], [[1.0, 2.0], [0.0, 0.0]], [shift - 1, 0.0])
    for parameter, value in zip(network.parameters(), values, strict=True):
        parameter.data = torch.tensor(value)
    return network.requires_grad_(False)


def start(
    network: nn.Module, eps: float, image: tuple[float, float] = (0.5, 0.5)
) -> tuple[SearchState, Decisions, dict[int, Result]]:
    results: dict[int, Result] = {}
    properties = Properties.around(network, torch.tensor([image]), torch.tensor([0]), eps)
    decisions = Decisions(properties, BUDGET, results.__setitem__)
    with torch.no_grad():
        state = bound_margins(PropertyBatch.of(properties, BUDGET, Arithmetic.FLOAT32), decisions)
    assert state is not None
    return state, decisions, results


def test_both_signs_of_the_difference_are_proved_and_so_is_the_property():
    # d lies in [−0.4, 0.8], so CROWN holds relu(−d) by 0 from below: d + 0.002 ≥ −0.398
    state, decisions, results = start(distance(0.002), 0.3, image=(0.6, 0.4))
    assert state.lower.tolist() == [[pytest.approx(-0.398, abs=1e-4)]]
    split_relus(state, decisions)
    decisions.report()
    assert results[0].verdict is Verdict.UNSAT
    assert results[0].decided_by == "branch and bound"


def test_a_negative_minimum_is_found_at_the_bound_s_own_minimiser_or_by_the_leaf_s_program():
    state, decisions, results = start(distance(-0.01), 0.3)
    assert bool((state.lower <= 0).any())
    split_relus(state, decisions)
    decisions.report()
    assert results[0].verdict is Verdict.SAT
    assert abs(float(results[0].counterexample @ torch.tensor([1.0, -1.0]))) < 0.01


def near_zero(margin: float) -> nn.Sequential:
    """A network whose smallest margin in the unit square is about this."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 2))
    network.requires_grad_(False)
    with torch.no_grad():
        scores = network(torch.rand(20000, 2))
        network[4].bias[0] -= (scores[:, 0] - scores[:, 1]).min() - margin
    return network


@pytest.mark.parametrize("margin", [0.02, -0.02])
@pytest.mark.parametrize("limit", [1, 100])
def test_a_look_goes_on_while_few_subproblems_are_open_and_little_time_has_passed(margin, limit, monkeypatch):
    taken = []
    for longer in (0.0, 1e9):
        monkeypatch.setattr(relu_splitting, "LONGER_LOOK", longer)
        state, decisions, results = start(near_zero(margin), 0.5)
        assert decisions.open
        look_at_relus(state, decisions, limit)
        decisions.report()
        taken.append(decisions.subproblems[0])
        if results:
            assert results[0].verdict is (Verdict.UNSAT if margin > 0 else Verdict.SAT)
        else:
            assert taken[-1] >= limit
    assert taken[0] <= limit + BUDGET.batch
    assert taken[1] >= taken[0]
    if limit == 100 and margin > 0:
        assert results, "100 open subproblems are more than this search ever has"


def test_what_a_look_leaves_open_is_not_called_proved(monkeypatch):
    """Two false properties that nothing refutes at once: while only one of them goes on, the other one stays open."""
    monkeypatch.setattr(relu_splitting, "LONGER_LOOK", 1e9)
    monkeypatch.setattr(relu_splitting._ReluSplitting, "_try_minimisers", lambda *_: None)
    rounds, run = [], relu_splitting._ReluSplitting.run
    monkeypatch.setattr(
        relu_splitting._ReluSplitting,
        "run",
        lambda self, limit, among=None: (rounds.append(among), run(self, limit, among)),
    )
    results: dict[int, Result] = {}
    properties = Properties.around(near_zero(-0.02), torch.tensor([[0.5, 0.5], [0.55, 0.4]]), torch.tensor([0, 0]), 0.5)
    decisions = Decisions(properties, BUDGET, results.__setitem__)
    with torch.no_grad():
        state = bound_margins(PropertyBatch.of(properties, BUDGET, Arithmetic.FLOAT32), decisions)
    assert decisions.open == {0, 1}
    after = look_at_relus(state, decisions, 6)
    decisions.report()
    assert any(among is not None and len(among) == 1 for among in rounds)
    assert all(result.verdict is Verdict.SAT for result in results.values())
    assert all(bool((after.lower[index] <= 0).any()) for index in decisions.open)


def test_a_limit_leaves_the_property_open():
    state, decisions, results = start(near_zero(1e-3), 0.5)
    if not decisions.open:
        pytest.skip("CROWN proves it")
    split_relus(state, decisions, limit=2)
    assert decisions.subproblems[0] <= 2 + BUDGET.batch
    assert not results or results[0].verdict is Verdict.SAT
