"""Descent on condensed networks: the values and gradients of the whole network, and counterexamples that replay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from random_networks import convolutional, dense
from steadynet.bounds.condensed import CondensedNetwork, condense
from steadynet.bounds.crown import propagate
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.condensed_attack import (
    Functions,
    attack_from_random_points,
    descend,
    values_and_gradients,
)
from steadynet.verification.search.decisions import Decisions

MARGINS = (torch.eye(3)[:1] - torch.eye(3)[1:]).double()


def small(network: nn.Module, image: torch.Tensor, radius: float) -> CondensedNetwork:
    box = Interval(image[None] - radius, image[None] + radius)
    with torch.no_grad():
        whole, _ = propagate(graph_of(network, tuple(image.shape)), box)
    return condense(whole, MARGINS.to(image), 2**28)


@pytest.mark.parametrize("kind", ["dense", "convolutional"])
@pytest.mark.parametrize("seed", range(3))
def test_values_and_gradients_are_those_of_the_whole_network(kind, seed):
    torch.manual_seed(seed)
    shape = (6,) if kind == "dense" else (1, 4, 4)
    network = dense(6, 3) if kind == "dense" else convolutional(3)
    network(torch.rand(2, *shape))
    network = network.double().eval().requires_grad_(False)
    image = torch.rand(*shape, dtype=torch.float64)
    condensed = small(network, image, 0.2)
    points = (image + 0.2 * (2 * torch.rand(5, *shape, dtype=torch.float64) - 1)).requires_grad_()
    margin = torch.randint(0, 2, (5,))
    expected = (network(points) * MARGINS[margin]).sum(1)
    (gradient,) = torch.autograd.grad(expected.sum(), points)
    columns = points.detach().flatten(1).t()
    found, direction = values_and_gradients(condensed, Functions.of(condensed, margin), columns)
    torch.testing.assert_close(found, expected.detach())
    torch.testing.assert_close(direction, gradient.flatten(1).t())
    best, least = descend(condensed, Functions.of(condensed, margin), columns, 10)
    assert bool((least <= found).all())
    again, _ = values_and_gradients(condensed, Functions.of(condensed, margin), best)
    torch.testing.assert_close(again, least)


@pytest.mark.parametrize("refuted", [True, False])
def test_it_refutes_what_it_can_and_nothing_else(refuted):
    network = nn.Sequential(nn.Linear(20, 4), nn.ReLU(), nn.Linear(4, 3)).requires_grad_(False)
    torch.manual_seed(0)
    network[0].weight.data, network[0].bias.data = torch.ones(4, 20), torch.full((4,), -10.0)
    network[2].weight.data = torch.tensor([[1.0] * 4, [0.0] * 4, [0.0] * 4])
    level = 0.1 if refuted else -0.1  # the first score is between 0 and 16, and 0 at many points
    network[2].bias.data = torch.tensor([0.0, level, -1.0])
    image = torch.full((20,), 0.55)
    results: dict[int, Result] = {}
    properties = Properties.around(network, image[None], torch.tensor([0]), 0.2)
    decisions = Decisions(properties, Budget(60.0, 40, 3, 256, 2**28), results.__setitem__)
    condensed = small(network, image, 0.2)
    assert attack_from_random_points(condensed, decisions, 0, torch.tensor([0, 1]), 3, 40) is refuted
    decisions.charge()
    assert (0 in results and results[0].verdict is Verdict.SAT) is refuted
    assert not attack_from_random_points(condensed, decisions, 0, torch.tensor([0]), 0, 40)


@pytest.mark.parametrize(("level", "arrives"), [(0.5, True), (100.0, False)])
def test_a_descent_goes_on_where_it_can_arrive_and_ends_where_it_cannot(level, arrives, monkeypatch):
    """The margin is level − Σ x on a box around 0.5: it falls by 4 in all, in steps that get shorter."""
    network = nn.Sequential(nn.Linear(20, 3)).requires_grad_(False)
    network[0].weight.data = torch.stack([-torch.ones(20), torch.zeros(20), torch.zeros(20)])
    network[0].bias.data = torch.tensor([level + 13.0, 0.0, 0.0])  # at least `level` − 1 on the box
    image = torch.full((20,), 0.5)
    condensed = small(network, image, 0.2)
    functions = Functions.of(condensed, torch.tensor([0]))
    steps: list[int] = []

    def counted(*arguments):
        steps.append(1)
        return values_and_gradients(*arguments)

    monkeypatch.setattr("steadynet.verification.search.condensed_attack.values_and_gradients", counted)
    _, least = descend(condensed, functions, condensed.box.lower, 40, enough=0.0)
    assert (float(least) < 0) is arrives
    assert len(steps) <= 20 if arrives else len(steps) <= 5
    steps.clear()
    _, least = descend(condensed, functions, condensed.box.lower, 40)  # without a goal, it takes all steps
    assert len(steps) == 41
    assert float(least) == pytest.approx(level - 1, abs=1e-4)
