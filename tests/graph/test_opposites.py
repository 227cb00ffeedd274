"""ReLUs of opposite numbers, merged: the same numbers, fewer ReLUs, and every rounding of the original counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.bounds.crown import crown_bounds, propagate, tightened
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Interval
from steadynet.graph.opposites import MergedDense, without_opposites
from steadynet.graph.rounding import Arithmetic, Execution, execution_error
from steadynet.graph.translate import graph_of
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.property_network import as_robustness
from steadynet.verification.search import input_splitting, property_batch
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound

SEARCH = BranchAndBound(timeout=20, clock="cpu")


def smaller_of_pairs(count: int, *, larger: bool = False) -> list[nn.Module]:
    """Layers that compute the smaller (or larger) of each pair of numbers by four ReLUs, as TLL networks do."""
    signs = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    side = 0.5 if larger else -0.5
    first, second = nn.Linear(count, 2 * count, bias=False), nn.Linear(2 * count, count // 2, bias=False)
    first.weight.data = torch.block_diag(*[signs] * (count // 2))
    second.weight.data = torch.block_diag(*[torch.tensor([[0.5, -0.5, side, side]])] * (count // 2))
    return [first, nn.ReLU(), second]


def lattice(seed: int) -> nn.Sequential:
    """The largest of two minima of linear functions of the input."""
    torch.manual_seed(seed)
    layers = [nn.Linear(2, 8), *smaller_of_pairs(8), *smaller_of_pairs(4), *smaller_of_pairs(2, larger=True)]
    return nn.Sequential(*layers).requires_grad_(False)


def test_the_same_numbers_come_out_of_fewer_relus():
    network, points = lattice(0), torch.randn(50, 2)
    linear = network[0](points)
    wanted = torch.maximum(linear[:, :4].amin(1), linear[:, 4:].amin(1))
    torch.testing.assert_close(network(points)[:, 0], wanted)
    graph = graph_of(network, (2,))
    merged, place = without_opposites(graph)
    widths = [merged.values(points)[relu].shape[1] for relu in merged.relus]
    assert widths == [4, 2, 1]  # a tournament of eight has seven matches
    torch.testing.assert_close(merged.values(points)[-1][:, 0], wanted)
    last_of_a_minimum = 4  # linear functions, sums and differences, ReLUs, minima
    torch.testing.assert_close(merged.values(points)[place[last_of_a_minimum]], graph.values(points)[last_of_a_minimum])


def test_neurons_without_an_opposite_stay_relus():
    network = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3)).requires_grad_(False)
    network[0].weight[3], network[0].bias[3] = -network[0].weight[1], -network[0].bias[1]
    network[2].weight[:, 3] = -network[2].weight[:, 1]
    merged, _ = without_opposites(graph_of(network, (2,)))
    points = torch.randn(20, 2)
    assert merged.values(points)[merged.relus[0]].shape[1] == 3
    torch.testing.assert_close(merged.values(points)[-1], network(points))


def test_rows_of_numbers_are_merged_row_by_row():
    """A dense layer works on the last axis, however many axes there are; bounds enclose what is computed."""
    network = nn.Sequential(*list(lattice(1))[:4]).requires_grad_(False)
    points = torch.rand(30, 3, 2)
    merged, _ = without_opposites(graph_of(network, (3, 2)))
    assert any(isinstance(node.operation, MergedDense) for node in merged.nodes)
    torch.testing.assert_close(merged.values(points)[-1], network(points))
    box = Interval(torch.zeros(1, 3, 2), torch.ones(1, 3, 2))
    bounded, values = propagate(merged, box, execution=Execution(Arithmetic.FLOAT32, torch.float32))
    found = tightened(bounded, bounded.output, values[-1], torch.ones(1, 3, 4, dtype=torch.bool), 2**29)
    for bounds in (found, values[-1]):
        assert bool(((bounds.lower <= network(points)) & (network(points) <= bounds.upper)).all())


@pytest.mark.parametrize("change", [1.0 + 2**-20, -1.0])
def test_numbers_that_are_not_opposite_are_left_alone(change):
    network = lattice(0)
    for layer in (network[1], network[4], network[7]):
        layer.weight[0] *= change
    graph = graph_of(network, (2,))
    merged, _ = without_opposites(graph)
    points = torch.randn(20, 2)
    torch.testing.assert_close(merged.values(points)[-1], network(points))


def test_the_two_sums_of_a_pair_may_round_differently():
    """z = 1e8 − 1 − 1e8 is −1, and 0 in another order: relu(−z) is 1 or 0, beside a z of −1."""
    network = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False)).requires_grad_(False)
    network[0].weight[:] = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0], [1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    network[2].weight[:] = torch.tensor([[1.0, 1.0, 1.0, -1.0]])
    x = torch.tensor([[1e8, -1.0, -1e8]])
    merged, _ = without_opposites(graph_of(network, (3,)))
    (operation,) = [node.operation for node in merged.nodes if isinstance(node.operation, MergedDense)]
    values = merged.converted(Tensor.double).values(x.double())
    node = merged.nodes[-1]
    largest = [values[source].abs().float() for source in node.inputs]
    error = execution_error(operation.rounding(*largest), Execution(Arithmetic.FLOAT32, torch.float32))
    plain = (operation.sizes @ torch.cat([largest[1], largest[2]], 1)[0])[0] * 5 * 2**-24
    assert float(values[node.inputs[1]][0, 0]) == -1.0
    assert float(torch.as_tensor(error).flatten()[0]) > float(plain) + 1.0


def properties_of(network: nn.Module, threshold: float) -> Properties:
    """The network stays below the threshold on [−1, 1]²."""
    low, high = -np.ones(2), np.ones(2)
    disjunct = Disjunct(low, high, np.array([[-1.0]]), np.array([-threshold]))
    graph = GraphNetwork(graph_of(network, (2,)), (2,))
    (boxes,) = as_robustness(graph, VnnlibProperty(2, 1, (disjunct,)))
    return boxes.properties


def largest_on_a_grid(network: nn.Module) -> float:
    """At most 0.01 below the largest value: weights are below 0.71, and points lie 0.005 apart."""
    axis = torch.linspace(-1, 1, 401)
    return float(network(torch.cartesian_prod(axis, axis)).max())


@pytest.mark.parametrize("halve", [True, False], ids=["boxes", "relus"])
def test_verdicts_near_the_largest_value_are_right(halve, monkeypatch):
    monkeypatch.setattr(input_splitting, "LEAST_UNSTABLE", 1 if halve else 10**6)
    for seed in range(3):
        network = lattice(seed)
        largest = largest_on_a_grid(network)
        (refuted,) = SEARCH(properties_of(network, largest - 1e-4))
        (proved,) = SEARCH(properties_of(network, largest + 0.02))
        assert (refuted.verdict, proved.verdict) == (Verdict.SAT, Verdict.UNSAT)


def test_merging_saves_parts(monkeypatch):
    monkeypatch.setattr(input_splitting, "LEAST_UNSTABLE", 1)
    monkeypatch.setattr(input_splitting, "ATTACK_SHARE", 0.0)
    parts = {}
    for merge in (True, False):
        monkeypatch.setattr(property_batch, "MERGE_OPPOSITES", merge)
        parts[merge] = 0
        for seed in range(3):
            network = lattice(seed)
            (result,) = SEARCH(properties_of(network, largest_on_a_grid(network) + 0.02))
            assert result.verdict is Verdict.UNSAT
            parts[merge] += result.subproblems
    assert parts[True] < parts[False] / 2


def test_two_dense_layers_before_a_relu_are_bounded_as_one():
    """x and x, then their difference: intervals of the two layers say [−1, 1], and it is 0."""
    network = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False), nn.ReLU()).requires_grad_(False)
    network[0].weight[:], network[1].weight[:] = torch.ones(2, 1), torch.tensor([[1.0, -1.0]])
    bounds = crown_bounds(network, InputRegion(torch.zeros(1, 1), torch.ones(1, 1))).relus[0]
    assert (float(bounds.lower), float(bounds.upper)) == (0.0, 0.0)
