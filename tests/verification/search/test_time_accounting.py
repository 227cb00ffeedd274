"""Time accounting with a clock that the test winds by hand, and with the clocks of the verifier."""

import time

import pytest
import torch

from helpers import dense
from steadynet.graph.rounding import Arithmetic
from steadynet.verification.properties import DecidedBy, Properties
from steadynet.verification.search import condensed_search, pipeline
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.time_accounting import TimeAccounts
from steadynet.verification.verifiers import make_verifier


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_is_shared_by_how_often_a_property_is_named():
    clock = HandClock()
    accounts = TimeAccounts(3, timeout=10, now=clock)
    clock.now += 6
    accounts.charge([0, 0, 2])
    assert accounts.seconds == [4, 0, 2]
    clock.now += 1
    accounts.charge([1])
    assert accounts.seconds == [4, 1, 2]
    assert sum(accounts.seconds) == 7
    assert [accounts.left(index) for index in range(3)] == [6, 9, 8]


def test_time_that_served_nobody_waits_for_the_next_charge():
    clock = HandClock()
    accounts = TimeAccounts(1, timeout=10, now=clock)
    clock.now += 3
    accounts.charge([])
    assert accounts.pending() == 3
    clock.now += 2
    accounts.charge([0])
    assert accounts.seconds == [5]
    assert accounts.pending() == 0


def test_a_running_computation_is_over_when_a_property_it_serves_has_used_up_its_time():
    clock = HandClock()
    accounts = TimeAccounts(2, timeout=10, now=clock)
    clock.now += 8
    accounts.charge([0])
    shares = accounts.shares([0, 1, 1, 1])
    assert shares == {0: 0.25, 1: 0.75}
    clock.now += 7.9  # property 0: 8 + 7.9/4 = 9.975
    assert not accounts.is_over_now(shares)
    clock.now += 0.1  # property 0: 8 + 8/4 = 10
    assert accounts.is_over_now(shares)
    assert not accounts.is_over(0)  # nothing is charged yet
    accounts.charge([0, 1, 1, 1])
    assert accounts.is_over(0)
    assert not accounts.is_over(1)


@pytest.mark.parametrize(("clock", "counts_sleep"), [("wall", True), ("cpu", False)])
def test_seconds_are_those_of_the_chosen_clock(clock, counts_sleep, monkeypatch):
    check = pipeline.check_images

    def check_slowly(*arguments):
        time.sleep(1.0)
        check(*arguments)

    monkeypatch.setattr(pipeline, "check_images", check_slowly)
    properties = Properties.around(dense(3, 4, 2), torch.rand(1, 3), torch.tensor([0]), eps=0.01)
    (result,) = make_verifier("branch_and_bound", {"clock": clock})(properties)
    assert (result.seconds >= 1.0) == counts_sleep


def _biased(label: int) -> torch.nn.Module:
    """A network that gives every image this label, however its weights move it."""
    network = dense(3, 8, 2)
    with torch.no_grad():
        network[-1].weight.mul_(1e-3)
        network[-1].bias.copy_(torch.tensor([1.0, -1.0] if label == 0 else [-1.0, 1.0]))
    return network


def test_an_image_with_a_wrong_label_pays_for_one_forward_pass_and_is_reported_before_any_bound(monkeypatch):
    """The forward pass takes 4 s for 4 properties, and the bounds of the other two take 20 s."""
    clock, events = HandClock(), []
    check, bound = pipeline.check_images, pipeline.bound_margins

    def slow_check(properties, decisions):
        clock.now += 4
        check(properties, decisions)

    def slow_bound(batch, decisions):
        events.append(f"bounding {len(batch.properties)}")
        clock.now += 20
        return bound(batch, decisions)

    monkeypatch.setattr(pipeline, "check_images", slow_check)
    monkeypatch.setattr(pipeline, "bound_margins", slow_bound)
    found = {}

    def on_result(index, result):
        events.append(index)
        found[index] = result

    properties = Properties.around(_biased(0), torch.rand(4, 3), torch.tensor([1, 0, 1, 0]), eps=0.1)
    budget = Budget(timeout=60, attack_steps=4, restarts=1, batch=16, memory=2**20, now=clock)
    pipeline.decide(properties, budget, Arithmetic.FLOAT32, on_result)
    assert events == [0, 2, "bounding 2", 1, 3]
    assert [found[index].verdict.value for index in range(4)] == ["sat", "unsat", "sat", "unsat"]
    assert [found[index].seconds for index in range(4)] == [1, 11, 1, 11]
    assert found[0].decided_by == found[2].decided_by == DecidedBy.MISCLASSIFIED
    assert torch.equal(found[2].counterexample, properties.images[2])


def test_an_image_with_a_wrong_label_is_decided_although_the_group_runs_out_of_time(monkeypatch):
    clock, bound = HandClock(), pipeline.bound_margins

    def endless_bound(batch, decisions):
        clock.now += 1000
        return bound(batch, decisions)

    monkeypatch.setattr(pipeline, "bound_margins", endless_bound)
    found = {}
    properties = Properties.around(_biased(0), torch.rand(2, 3), torch.tensor([1, 0]), eps=0.1)
    budget = Budget(timeout=5, attack_steps=4, restarts=1, batch=16, memory=2**20, now=clock)
    pipeline.decide(properties, budget, Arithmetic.FLOAT32, found.__setitem__)
    assert (found[0].verdict.value, found[0].seconds) == ("sat", 0)
    assert found[1].verdict.value == "timeout"


def test_freeing_what_a_search_leaves_behind_takes_the_time_of_its_own_property(monkeypatch):
    """Each search takes 1 s, and what the first one leaves behind takes 20 s to free."""
    clock = HandClock()

    def searched(state, decisions, index, **_):
        clock.now += 1
        decisions.prove(index, 0.5, DecidedBy.RELU_SPLITTING)
        decisions.charge([index])
        clock.now += 20 if index == 0 else 0

    monkeypatch.setattr(condensed_search, "search_condensed", searched)
    monkeypatch.setattr(pipeline, "STAGES", (condensed_search.split_condensed,))
    monkeypatch.setattr(pipeline, "first_attack", lambda state, decisions: state)
    network = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
    values = ([[1.0], [-1.0]], [-0.5, 0.5], [[1.0, 1.0], [0.0, 0.0]], [-0.01, 0.0])
    for parameter, value in zip(
        network.parameters(), values, strict=True
    ):  # the margin |x − 0.5| − 0.01: CROWN leaves it
        parameter.data = torch.tensor(value)
    properties = Properties.around(network, torch.tensor([[0.8], [0.2]]), torch.tensor([0, 0]), eps=0.5)
    found = {}
    budget = Budget(timeout=60, attack_steps=4, restarts=1, batch=16, memory=2**20, now=clock)
    pipeline.decide(properties, budget, Arithmetic.FLOAT32, found.__setitem__)
    assert [found[index].seconds for index in range(2)] == [1, 1]


def test_the_accounts_of_some_properties_keep_what_they_were_charged():
    clock = HandClock()
    accounts = TimeAccounts(3, timeout=10, now=clock)
    clock.now += 6
    accounts.charge([0, 0, 2])
    clock.now += 2
    rest = accounts.of([0, 2])
    assert rest.seconds == [4, 2]
    assert rest.pending() == 2
    assert rest.left(1) == 8
