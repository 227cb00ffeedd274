"""Time accounting with a clock that the test winds by hand, and with the clocks of the verifier."""

import time

import pytest
import torch

from helpers import dense
from steadynet.verification.properties import Properties
from steadynet.verification.search import pipeline
from steadynet.verification.search.time_accounting import TimeAccounts
from steadynet.verification.verify import make_verifier


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
