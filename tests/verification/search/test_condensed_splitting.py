"""Splits on condensed networks: the verdicts of others, and no proof that the whole network does not confirm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

import soundness
from steadynet.bounds.condensed import CondensedNetwork, condense
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.search import condensed_search, pipeline, program_splitting
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound
from steadynet.verification.verifiers.milp import Milp


@pytest.fixture(autouse=True, params=[0, 1])
def straight(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go straight to the condensed networks, after a first look at them or without."""
    monkeypatch.setattr(pipeline, "FEW_INPUTS", 0)
    monkeypatch.setattr(program_splitting, "MOST_INPUTS", -1)
    monkeypatch.setattr(pipeline, "FIRST_LOOK", request.param)


def near_the_boundary(seed: int, margin: float, width: int = 12) -> Properties:
    """A network whose smallest margin over a grid of the box is ``margin``."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
    axis = torch.linspace(0, 1, 201)
    grid = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        scores = network(grid)
        network[4].bias[0] -= (scores[:, 0] - scores[:, 1]).min() - margin
    return Properties.around(network, torch.full((1, 2), 0.5), torch.tensor([0]), 0.5)


def no_attack(**settings: object) -> BranchAndBound:
    return BranchAndBound(timeout=60.0, attack_steps=0, restarts=0, programs=False, **settings)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("margin", [-0.001, 0.02])
def test_both_searches_and_mixed_integer_programs_agree(seed, margin):
    properties = near_the_boundary(seed, margin)
    expected = Milp(timeout=60.0)(properties)[0].verdict
    assert expected is (Verdict.SAT if margin < 0 else Verdict.UNSAT)
    for condense_it in (True, False):
        (result,) = no_attack(condense=condense_it)(properties)
        assert result.verdict is expected


def test_random_networks_of_every_kind():
    for seed in range(25):
        case = soundness.make(seed)
        _, complaints = soundness.check(case, soundness.verifiers(), in_time=False)
        assert not complaints, (seed, case.kind, complaints)


def test_a_condensed_network_that_claims_too_much_proves_nothing(monkeypatch):
    def optimistic(*arguments: object) -> CondensedNetwork:
        network = condense(*arguments)
        return replace(network, constants=network.constants + 100.0)

    monkeypatch.setattr(condensed_search, "condense", optimistic)
    for seed in range(3):
        (result,) = no_attack()(near_the_boundary(seed, -0.02, width=6))
        assert result.verdict is Verdict.SAT


@pytest.mark.parametrize("reason", ["large", "not finite", "no time"])
def test_the_whole_network_is_split_where_the_condensed_one_is_of_no_use(monkeypatch, reason):
    properties = near_the_boundary(0, 0.02)

    def overflown(*arguments: object) -> CondensedNetwork:
        network = condense(*arguments)
        return replace(network, constants=network.constants + torch.inf)

    def late(*_: object) -> CondensedNetwork:
        raise condensed_search.OutOfTimeError

    changes: dict[str, tuple[str, Callable[..., object]]] = {
        "large": ("condensed_size", lambda _: 2**40),
        "not finite": ("condense", overflown),
        "no time": ("condense", late),
    }
    monkeypatch.setattr(condensed_search, *changes[reason])
    (result,) = no_attack()(properties)
    assert result.verdict is Verdict.UNSAT
