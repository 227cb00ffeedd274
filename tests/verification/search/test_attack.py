"""Attacks of the search: diversified starts, and the best point of a descent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.bounds import crown
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.search import attack, pipeline
from steadynet.verification.search.attack import attack_margins, descend_on_margins, diversified
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.property_batch import PropertyBatch, SearchState


def batch_of(network: nn.Module, lower: Tensor, upper: Tensor, **spent: int) -> tuple[PropertyBatch, Decisions, list]:
    """Class 0 must win in each box."""
    labels, found = torch.zeros(len(lower), dtype=torch.long), []
    properties = Properties(network, lower.clone(), labels, InputRegion(lower, upper))
    budget = Budget(**({"timeout": 60, "attack_steps": 20, "restarts": 3, "batch": 64, "memory": 2**28} | spent))
    decisions = Decisions(properties, budget, lambda index, result: found.append((index, result)))
    return PropertyBatch.of(properties, budget, Arithmetic.FLOAT32), decisions, found


def linear() -> nn.Module:
    """The scores x and −x, so that the margin is 2x."""
    network = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    network[0].weight.data = torch.tensor([[1.0], [-1.0]])
    network[2].weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    return network.requires_grad_(False)


def test_diversified_points_lie_in_their_own_boxes_and_at_both_ends():
    """Along a random direction of the output, long steps of a linear network end at an end of the box."""
    torch.manual_seed(0)
    lower, upper = torch.tensor([[1.0], [10.0]]), torch.tensor([[2.0], [30.0]])
    batch, decisions, _ = batch_of(linear(), lower, upper)
    owner = torch.arange(2).repeat(50)
    points = diversified(batch, decisions, owner)
    assert bool(batch.properties.region[owner].contains(points).all())
    for row in (0, 1):
        assert set(points[row::2, 0].tolist()) == {float(lower[row, 0]), float(upper[row, 0])}


@pytest.mark.parametrize(("every", "calls"), [(0, 0), (3, 1), (1, 1)])
def test_every_third_restart_is_diversified(every, calls, monkeypatch):
    torch.manual_seed(0)
    batch, decisions, _ = batch_of(linear(), torch.tensor([[1.0]]), torch.tensor([[2.0]]), restarts=6)
    rows: list[int] = []
    monkeypatch.setattr(attack, "DIVERSIFIED", every)
    plain = attack.diversified
    monkeypatch.setattr(attack, "diversified", lambda *given: rows.append(len(given[2])) or plain(*given))
    network, _ = batch.bounded(batch_box(batch))
    attack_margins(SearchState(batch, network, torch.zeros(1, 1, dtype=torch.float64)), decisions)
    assert len(rows) == calls
    assert sum(rows) == (6 // every if every else 0)
    assert decisions.open == {0}  # the margin is positive: no attack refutes it


def batch_box(batch: PropertyBatch) -> Interval:
    return Interval(batch.properties.region.lower, batch.properties.region.upper)


def test_a_counterexample_met_on_the_way_is_taken(monkeypatch):
    """The start is a counterexample, the first long step leaves it, and the descent ends elsewhere.

    The margin is |x − 0.5| · 40 − 0.4 on [0.49, 0.51] and its gradient is steep, so a step of 1/8 leaps over the dip.
    """
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).requires_grad_(False)
    network[0].weight.data, network[0].bias.data = torch.tensor([[1.0], [-1.0]]), torch.tensor([-0.5, 0.5])
    network[2].weight.data, network[2].bias.data = torch.tensor([[40.0, 40.0], [0.0, 0.0]]), torch.tensor([-0.4, 0.0])
    start = torch.tensor([[0.492]])
    for best, verdicts in ((False, []), (True, [Verdict.SAT])):
        monkeypatch.setattr(attack, "BEST_ON_THE_WAY", best)
        batch, decisions, found = batch_of(network, torch.zeros(1, 1), torch.ones(1, 1))
        descend_on_margins(batch, decisions, torch.tensor([0]), torch.tensor([0]), start, 1)
        decisions.report()
        results: list[Result] = [result for _, result in found]
        assert [result.verdict for result in results] == verdicts


def test_a_descent_without_hope_ends_early(monkeypatch):
    """On [1, 2] the margin 2x is least at the start, 1: it will not get below zero. On [−1, 2] it will."""
    steps: list[int] = []
    plain = attack._Way._value
    monkeypatch.setattr(attack._Way, "_value", lambda way, shares: steps.append(1) or plain(way, shares))
    owner = margin = torch.tensor([0])

    def descended(lower: float, start: float, hopeful: bool) -> tuple[int, bool]:
        batch, decisions, _ = batch_of(linear(), torch.tensor([[lower]]), torch.tensor([[2.0]]))
        steps.clear()
        descend_on_margins(batch, decisions, owner, margin, torch.tensor([[start]]), 20, hopeful=hopeful)
        return len(steps), not decisions.open

    assert descended(1.0, 1.0, hopeful=False) == (20, False)
    assert descended(1.0, 1.0, hopeful=True) == (attack.PACE + 1, False)
    assert descended(-1.0, 2.0, hopeful=True) == (20, True)


def brightness() -> nn.Module:
    """The scores s − 4 and 4 − s for the sum s of four pixels, through two convolutions: class 0 wins where s > 4."""
    network = nn.Sequential(
        nn.Conv2d(1, 1, 1, bias=False), nn.ReLU(), nn.Conv2d(1, 1, 1, bias=False), nn.ReLU(), nn.Flatten(),
        nn.Linear(4, 2),
    ).requires_grad_(False)  # fmt: skip
    network[0].weight.data.fill_(1.0)
    network[2].weight.data.fill_(1.0)
    network[5].weight.data = torch.tensor([[1.0] * 4, [-1.0] * 4])
    network[5].bias.data = torch.tensor([-4.0, 4.0])
    return network


@pytest.mark.parametrize("restarts", [0, 3])
@pytest.mark.parametrize("batch", [1, 2, 64])
def test_large_networks_are_attacked_before_they_are_bounded(monkeypatch, batch, restarts):
    """Every second box meets the sum 4; those are refuted at once, and the others keep their numbers and labels."""
    monkeypatch.setattr(crown, "LARGE_MAP", 1)
    torch.manual_seed(0)
    pixels, labels = torch.tensor([1.5, 1.2, 0.5, 0.8, 1.5, 1.2]), torch.tensor([0, 0, 1, 1, 0, 0])
    pixels = pixels.view(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()
    region = InputRegion(pixels - 0.3, pixels + 0.3)
    properties = Properties(brightness(), pixels, labels, region)
    budget = Budget(timeout=60, attack_steps=20, restarts=restarts, batch=batch, memory=2**28)
    bounded, found = [], {}
    plain = PropertyBatch.bounded
    monkeypatch.setattr(
        PropertyBatch, "bounded", lambda self, *args: bounded.append(len(self.properties)) or plain(self, *args)
    )
    pipeline.decide(properties, budget, Arithmetic.FLOAT32, found.__setitem__)
    assert [found[index].verdict for index in range(6)] == [Verdict.UNSAT, Verdict.SAT] * 3
    for index in (1, 3, 5):
        total = float(found[index].counterexample.sum())
        assert total <= 4 if labels[index] == 0 else total >= 4
        assert bool(region[index : index + 1].contains(found[index].counterexample[None]).all())
    assert bounded[0] == (3 if restarts else 6)


def test_a_group_that_the_first_attack_refutes_is_never_bounded(monkeypatch):
    monkeypatch.setattr(crown, "LARGE_MAP", 1)
    monkeypatch.setattr(pipeline, "_run_stages", lambda *_: pytest.fail("everything was decided"))
    pixels = torch.full((2, 1, 2, 2), 1.2)
    properties = Properties(
        brightness(), pixels, torch.zeros(2, dtype=torch.long), InputRegion(pixels - 0.4, pixels + 0.4)
    )
    budget = Budget(timeout=60, attack_steps=20, restarts=3, batch=64, memory=2**28)
    found = {}
    assert pipeline.decide(properties, budget, Arithmetic.FLOAT32, found.__setitem__)
    assert [found[index].verdict for index in (0, 1)] == [Verdict.SAT, Verdict.SAT]


def test_the_least_of_several_margins_is_what_a_first_attack_follows():
    """From one point on, another margin is the least: 3 − x and x + 1 on [−2, 2] are least at −2, where one is −1."""
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 3)).requires_grad_(False)
    network[0].weight.data, network[0].bias.data = torch.tensor([[1.0], [-1.0]]), torch.zeros(2)
    network[2].weight.data = torch.tensor([[0.0, 0.0], [1.0, -1.0], [-1.0, 1.0]])
    network[2].bias.data = torch.tensor([0.0, -3.0, -1.0])
    batch, decisions, found = batch_of(network, torch.tensor([[-2.0]]), torch.tensor([[2.0]]))
    descend_on_margins(batch, decisions, torch.tensor([0]), None, torch.tensor([[0.5]]), 20)
    decisions.report()
    assert [result.verdict for _, result in found] == [Verdict.SAT]
    assert float(found[0][1].counterexample) < -1
