"""Conjunctions and disjunctions of output constraints, halved: known by hand, and against MILP and dense sampling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from soundness import TIE
from steadynet.bounds.crown import propagate
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic
from steadynet.graph.translate import graph_of
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.property_network import as_robustness
from steadynet.verification.search import conjunctions, input_splitting, part_bounds
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.conjunctions import Conjunctions
from steadynet.verification.search.property_batch import PropertyBatch
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound
from steadynet.verification.verifiers.milp import Milp

SEARCH = BranchAndBound(timeout=20, restarts=1, attack_steps=1, batch=64)
SEARCH_BUDGET = Budget(timeout=20, attack_steps=1, restarts=1, batch=64, memory=2**29)
EXECUTION = Arithmetic.FLOAT32


def properties_of(network: nn.Module, disjuncts: list[tuple[list[list[float]], list[float]]], size: int) -> Properties:
    """The unit box must satisfy no disjunct matrix · y ≤ bound."""
    low, high = np.zeros(size), np.ones(size)
    made = tuple(Disjunct(low, high, np.array(matrix), np.array(bound)) for matrix, bound in disjuncts)
    graph = GraphNetwork(graph_of(network, (size,)), (size,))
    outputs = np.array(disjuncts[0][0]).shape[1]
    (boxes,) = as_robustness(graph, VnnlibProperty(size, outputs, made))
    return boxes.properties


def identity(size: int) -> nn.Module:
    network = nn.Sequential(nn.Linear(size, size), nn.ReLU())
    network[0].weight.data, network[0].bias.data = torch.eye(size), torch.zeros(size)
    return network


def test_the_conjuncts_are_the_constraints_before_their_maximum():
    """Two disjuncts with one and three constraints on y = x: the values at the position are C · x − d."""
    first, second = ([[1.0, 0.0]], [0.5]), ([[0.0, 1.0], [1.0, 1.0], [1.0, -1.0]], [0.25, 1.0, 0.0])
    properties = properties_of(identity(2), [first, second], 2)
    batch = PropertyBatch.of(properties, SEARCH_BUDGET, EXECUTION)
    found = Conjunctions.of(batch)
    assert found.used.tolist() == [[True, False, False], [True, True, True]]
    point = torch.tensor([[0.5, 0.75]])
    values = (found.functions[0] @ found.graph.values(point)[-1][0]).masked_fill(~found.used, -torch.inf)
    assert values[0].tolist()[0] == 0.0
    assert values[1].tolist() == [0.5, 0.25, -0.25]
    margins = (batch.margins[0] @ properties.network(point)[0]).tolist()
    assert values.amax(1).tolist() == margins


def test_a_robustness_property_has_one_conjunct_per_margin():
    properties = Properties.around(identity(3), torch.rand(2, 3), torch.tensor([0, 1]), 0.1)
    batch = PropertyBatch.of(properties, SEARCH_BUDGET, EXECUTION)
    found = Conjunctions.of(batch)
    assert found.graph == batch.graph
    assert torch.equal(found.functions[:, :, 0], batch.margins)


def random_case(seed: int) -> tuple[nn.Module, list[tuple[Tensor, Tensor]], int]:
    """A random network and constraints whose closest sampled point misses, or meets, a disjunct by very little."""
    torch.manual_seed(seed)
    size, outputs, width = 1 + seed % 3, 2 + seed % 4, 8
    network = nn.Sequential(
        nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    ).requires_grad_(False)
    for layer in network:
        if isinstance(layer, nn.Linear):
            layer.weight *= 2.5
    values = network(grid(size)).double()
    disjuncts = []
    for _ in range(1 + seed % 3):
        rows = 1 + int(torch.randint(4, ()))
        matrix = torch.randn(rows, outputs).double()
        reached = values @ matrix.T
        offset = reached.median(0).values
        closest = float((reached - offset).amax(1).min())  # of the maximum, over the grid
        room = float(torch.tensor([1e-5, 1e-3, 3e-2, 2e-1])[torch.randint(4, ())])
        disjuncts.append((matrix, offset + closest + (room if seed % 5 == 0 else -room)))
    return network, disjuncts, size


def grid(size: int) -> Tensor:
    axis = torch.linspace(0, 1, {1: 4001, 2: 121, 3: 31}[size])
    return torch.cartesian_prod(*[axis] * size).view(-1, size)


def is_violated(properties: Properties, size: int) -> bool:
    """Whether a point of a dense grid clearly satisfies a disjunct."""
    scores = properties.network(grid(size))
    return bool((scores[:, :-1] > 1e-5).any())


def properties_near_a_boundary(seed: int) -> tuple[Properties, int]:
    network, disjuncts, size = random_case(seed)
    return properties_of(network, [(matrix.tolist(), bound.tolist()) for matrix, bound in disjuncts], size), size


def check(seed: int) -> Result:
    """The result of the search, which must agree with MILP and with a grid."""
    properties, size = properties_near_a_boundary(seed)
    (found,), (exact,) = SEARCH(properties), Milp(timeout=20)(properties)
    assert {found.verdict, exact.verdict} != {Verdict.SAT, Verdict.UNSAT}, f"seed {seed}: {found} {exact}"
    if is_violated(properties, size):
        assert found.verdict is not Verdict.UNSAT, f"seed {seed}: {found}"
    assert found.verdict in (Verdict.SAT, Verdict.UNSAT) or TIE in found.reason, f"seed {seed}: {found}"
    return found


@pytest.fixture
def always(monkeypatch):
    """Even a box with one unstable ReLU is halved, and only halving finds counterexamples."""
    monkeypatch.setattr(input_splitting, "LEAST_UNSTABLE", 1)
    monkeypatch.setattr(input_splitting, "ATTACK_SHARE", 0.0)


@pytest.mark.parametrize("single", [True, False], ids=["conjuncts", "maximum"])
@pytest.mark.parametrize("clipping", [True, False], ids=["clipped", "whole"])
@pytest.mark.parametrize("mixtures", [True, False], ids=["mixed", "alone"])
def test_thin_conjunctions_never_contradict_milp_nor_a_grid(single, clipping, mixtures, always, monkeypatch):
    if mixtures and not single:
        pytest.skip("a maximum is one function, so there is nothing to mix")
    monkeypatch.setattr(conjunctions, "SINGLE_CONJUNCTS", single)
    monkeypatch.setattr(part_bounds, "CLIPPING", clipping)
    monkeypatch.setattr(part_bounds, "MIXTURES", mixtures)
    found = [check(seed) for seed in range(12)]
    assert {Verdict.SAT, Verdict.UNSAT} <= {result.verdict for result in found}
    assert "halved boxes" in {result.decided_by for result in found}


def test_conjuncts_by_themselves_need_fewer_parts(always, monkeypatch):
    parts = {}
    for single in (True, False):
        monkeypatch.setattr(conjunctions, "SINGLE_CONJUNCTS", single)
        found = [SEARCH(properties_near_a_boundary(seed)[0])[0] for seed in range(100, 108)]
        parts[single] = sum(result.subproblems for result in found)
    assert parts[True] < parts[False]


def test_a_mixture_proves_what_no_conjunct_proves_alone(always, monkeypatch):
    """x + y ≤ 0.9 and x + y ≥ 1.1 have no solution, and each alone has one in every half of the unit box."""
    monkeypatch.setattr(part_bounds, "CLIPPING", False)
    network = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
    network[0].weight.data, network[0].bias.data = torch.ones(1, 2), torch.tensor([-0.01])  # unstable
    properties = properties_of(network, [([[1.0], [-1.0]], [0.9, -1.1])], 2)
    batch = PropertyBatch.of(properties, SEARCH_BUDGET, EXECUTION)
    found = Conjunctions.of(batch)
    box = Interval(properties.region.lower, properties.region.upper)
    bounded, _ = propagate(found.graph, box, execution=batch.execution)
    one = torch.ones(1, dtype=torch.long)
    parts = part_bounds.Parts(0 * one, 0 * one, box, bounded.bounds, one[:, None] > 0)
    worst = {}
    for mixtures in (True, False):
        monkeypatch.setattr(part_bounds, "MIXTURES", mixtures)
        worst[mixtures] = float(part_bounds.bound_parts(parts, bounded, found).worst)
    assert worst[False] < -0.8
    assert 0 < worst[True] <= 0.1  # (y − 0.9 + 1.1 − y) / 2


def test_all_conjuncts_choose_the_input_to_halve(always, monkeypatch):
    network = identity(2)
    network[0].bias.data = torch.full((2,), -0.01)
    properties = properties_of(network, [([[1.0, 0.0], [0.0, 2.0]], [0.5, 0.5])], 2)
    batch = PropertyBatch.of(properties, SEARCH_BUDGET, EXECUTION)
    found = Conjunctions.of(batch)
    box = Interval(properties.region.lower, properties.region.upper)
    bounded, _ = propagate(found.graph, box, execution=batch.execution)
    one = torch.ones(1, dtype=torch.long)
    parts = part_bounds.Parts(0 * one, 0 * one, box, bounded.bounds, one[:, None] > 0)
    (steep,) = part_bounds.bound_parts(parts, bounded, found).steep.tolist()
    assert steep == pytest.approx([1.0, 2.0])
