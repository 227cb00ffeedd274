"""The exact program: minima by hand and by force, verdicts at the edge, time-outs and crashes."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import soundness
from helpers import convolutional, dense, residual, some_images
from steadynet.attacks.region import InputRegion
from steadynet.bounds import graph_of
from steadynet.bounds.crown import propagate
from steadynet.bounds.precision import in_float64
from steadynet.graph.operations import Interval
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.search.leaf import settle
from steadynet.verification.search.milp_model import MilpModel
from steadynet.verification.search.subproblem import Split, Subproblem
from steadynet.verification.verifiers import available
from steadynet.verification.verifiers.milp import Milp


def program_of(network: nn.Module, region: InputRegion, splits: tuple[Split, ...] = ()) -> MilpModel:
    with torch.no_grad():
        graph = graph_of(network, region.lower.shape[1:])
        bounded, _ = propagate(graph, Interval(region.lower, region.upper))
    return MilpModel(in_float64(bounded), splits)


def hat() -> nn.Sequential:
    """Class 0 scores 0.4, class 1 the hat 1 − 2|x − 1/2| − so the label changes within 0.2 of 1/2."""
    network = dense(1, 2, 2)
    values = ([[1.0], [-1.0]], [-0.5, 0.5], [[0.0, 0.0], [-2.0, -2.0]], [0.4, 1.0])
    for parameter, value in zip(network.parameters(), values, strict=True):
        parameter.data = torch.tensor(value)
    return network


def test_it_is_a_plug_in():
    assert available()["milp"] is Milp


def test_minimum_by_hand():
    program = program_of(hat(), InputRegion(torch.tensor([[0.0]]), torch.tensor([[0.8]])))
    found = program.minimise(program.margin(torch.tensor([1.0, -1.0])), 10.0)
    assert found.finished
    assert found.lower == pytest.approx(-0.6)
    assert found.point.item() == pytest.approx(0.5)
    early = program.minimise(program.margin(torch.tensor([1.0, -1.0])), 10.0, enough=-0.7)
    assert -0.7 < early.lower <= -0.6 + 1e-6


@pytest.mark.parametrize(("radius", "verdict"), [(0.09, "unsat"), (0.1001, "sat"), (0.5, "sat"), (0.0, "unsat")])
def test_the_edge_of_a_hat(radius, verdict):
    # at 0.1 the label changes at 0.2: the edge is a radius of 0.1
    properties = Properties.around(hat(), torch.tensor([[0.1]]), torch.tensor([0]), radius)
    (result,) = Milp()(properties)
    assert result.verdict.value == verdict
    assert (result.counterexample is not None) == (verdict == "sat")
    if verdict == "unsat":
        assert 0 < result.margin <= 0.4 - 2 * (0.1 + radius) + 1e-5


@pytest.mark.parametrize("kind", ["leaky", "max pool", "residual", "convolutional"])
def test_minimum_is_below_all_samples_and_attained(kind):
    torch.manual_seed(3)
    networks = {
        "leaky": nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.LeakyReLU(0.3), nn.Linear(8, 2)),
        "max pool": nn.Sequential(
            nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2, 1, 1), nn.Flatten(), nn.Linear(18, 2)
        ),
        "residual": residual(),
        "convolutional": convolutional(),
    }
    network = networks[kind].eval().requires_grad_(False)
    region = InputRegion.around(some_images(1), 0.05)
    program = program_of(network, region)
    row = torch.zeros(network(region.lower).shape[1])
    row[0], row[1] = 1.0, -1.0
    found = program.minimise(program.margin(row), 60.0)
    assert found.finished
    points = torch.cat([region.sample() for _ in range(300)])
    assert found.lower <= float((network(points) @ row).min()) + 1e-6
    assert float(network(found.point[None].float()) @ row) == pytest.approx(found.lower, abs=1e-4)


def test_times_out_within_a_second_and_times_add_up():
    torch.manual_seed(0)
    network = dense(20, 60, 60, 60, 4)
    properties = Properties.around(network, torch.rand(2, 20), network(torch.rand(2, 20)).argmax(1), 0.4)
    start = time.perf_counter()
    results = Milp(timeout=1.0)(properties)
    elapsed = time.perf_counter() - start
    assert all(result.seconds < 2.0 for result in results)
    assert sum(result.seconds for result in results) == pytest.approx(elapsed, abs=0.1)


def test_a_crash_is_an_error_with_its_reason():
    network = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    results = Milp()(Properties.around(network, torch.rand(2, 2), torch.tensor([0, 1]), 0.1))
    open_ones = [result for result in results if result.verdict != Verdict.SAT]
    assert open_ones
    for result in open_ones:
        assert result.verdict == Verdict.ERROR
        assert "Tanh" in result.reason


def test_an_empty_leaf_is_proved_empty_by_hand():
    # relu(x) and relu(x − 0.5) on [0, 1]: x ≤ 0.2 and x ≥ 0.5 cannot both hold
    network = dense(1, 2, 2)
    for parameter, value in zip(
        network.parameters(), ([[1.0], [1.0]], [-0.2, -0.5], [[1, 1], [0, 0]], [0, 0]), strict=True
    ):
        parameter.data = torch.tensor(value, dtype=torch.float32)
    region = InputRegion(torch.zeros(1, 1), torch.ones(1, 1))
    with torch.no_grad():
        bounded, _ = propagate(graph_of(network, (1,)), Interval(region.lower, region.upper))
    (relu,) = bounded.graph.relus
    leaf = Subproblem(0, 0, -1.0, (Split(relu, 0, -1), Split(relu, 1, 1)))
    assert settle(in_float64(bounded), torch.tensor([1.0, -1.0]), leaf, 10.0).lower > 0
    other = Subproblem(0, 0, -1.0, (Split(relu, 0, 1), Split(relu, 1, -1)))
    assert settle(in_float64(bounded), torch.tensor([1.0, -1.0]), other, 10.0).lower == pytest.approx(0, abs=1e-5)


def test_highs_is_not_believed_where_its_presolve_is_wrong():
    # seed 482 of the soundness suite: HiGHS 1.15's presolve calls this feasible program infeasible at some bounds
    for case in (soundness.make(482), soundness.make(940)):
        _, wrong = soundness.check(case, soundness.verifiers())
        assert not wrong


def test_a_tie_is_unknown():
    case = soundness.make(soundness.KINDS.index("thin margin"))
    verdicts = {result.verdict for result in Milp()(case.properties())}
    assert verdicts <= {Verdict.UNKNOWN, Verdict.SAT}
