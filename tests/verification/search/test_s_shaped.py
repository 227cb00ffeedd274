"""Networks with sigmoids and tanhs: bounds and verdicts against sampling, dense grids, and other forms of the truth."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from steadynet import verify
from steadynet.attacks.region import InputRegion
from steadynet.bounds.crown import crown_bounds, propagate
from steadynet.bounds.interval import interval_bounds
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.optimised import Ascent, optimise, optimised_bounds
from steadynet.bounds.queries import BoundQuery
from steadynet.bounds.substitution import lost_by_cancelling
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of
from steadynet.verification.properties import DecidedBy, Properties, Verdict
from steadynet.verification.search.bounding import apply_splits, bound
from steadynet.verification.search.subproblem import Split, Subproblem
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound
from steadynet.verification.verifiers.milp import Milp


class Added(nn.Module):
    """A residual connection, so that several operations read one value."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


def networks(seed, scale):
    """One network of each kind, all with inputs (1, 4, 4) and three scores."""
    torch.manual_seed(seed)
    kinds = {
        "dense": [nn.Flatten(), nn.Linear(16, 7), nn.Sigmoid(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3)],
        "convolutional": [nn.Conv2d(1, 2, 3, padding=1), nn.Tanh(), nn.Conv2d(2, 2, 2, stride=2), nn.Sigmoid(),
                          nn.Flatten(), nn.Linear(8, 3)],
        "residual": [nn.Flatten(), nn.Linear(16, 6), Added(nn.Sigmoid(), nn.Linear(6, 6), nn.Tanh()), nn.Sigmoid(),
                     nn.Linear(6, 3)],
        "mixed": [nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), Added(nn.Linear(8, 8), nn.Tanh()), nn.ReLU(),
                  nn.Linear(8, 5), nn.Sigmoid(), nn.Linear(5, 3)],
        "pooled": [nn.Conv2d(1, 2, 2, padding=1), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)],
    }  # fmt: skip
    for layers in kinds.values():
        for layer in nn.Sequential(*layers).modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                layer.weight.data *= scale
    return {name: nn.Sequential(*layers).eval() for name, layers in kinds.items()}


def lowest(network, region, functions, steps=15):
    """The smallest values that an attack finds of each function of the output, (regions, functions)."""
    found = torch.full((len(region.lower), len(functions)), torch.inf)
    for row, function in enumerate(functions):
        for start in (region.sample(), region.lower.clone(), region.upper.clone(), region.sample()):
            point = start
            for step in range(steps):
                point = point.detach().requires_grad_()
                value = (network(point) * function).sum(1)
                found[:, row] = torch.minimum(found[:, row], value.detach())
                (gradient,) = torch.autograd.grad(value.sum(), point)
                width = (region.upper - region.lower) * 0.5 / (1 + step / 4)
                point = region.project(point - gradient.sign() * width)
    return found


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.3, 1.0, 4.0, 30.0]), st.sampled_from([0.01, 0.2, 1.0]))
def test_no_bound_lies_above_what_an_attack_reaches(seed, scale, radius):
    for name, network in networks(seed, scale).items():
        region = InputRegion.around(torch.rand(3, 1, 4, 4), radius)
        functions = torch.tensor([[1.0, -1.0, 0.0], [0.0, -1.0, 1.0], [-1.0, 0.0, 0.0]])
        reached = lowest(network, region, functions)
        graph, box = graph_of(network, (1, 4, 4)), Interval(region.lower, region.upper)
        with torch.no_grad():
            bounded, _ = propagate(graph, box, execution=Execution(Arithmetic.FLOAT32, torch.float32))
        query = BoundQuery(graph.output, LinearFunctions(functions.repeat(3, 1)), torch.arange(3).repeat_interleave(3))
        crown = bounded.relaxed().lower(query).proved.view(3, 3)
        moved = optimise(bounded.relaxed(), query, Ascent(iterations=8, slope_rate=0.3)).lower.view(3, 3)
        assert bool((crown <= reached).all()), name
        assert bool((moved <= reached).all()), name
        assert bool((moved >= crown - 1e-3 * crown.abs() - 1e-5).all()), name
        for bounds in (
            interval_bounds(network, region),
            crown_bounds(network, region),
            optimised_bounds(network, region),
        ):
            assert bool((bounds.output.lower[:, 0] - 1e-4 <= lowest(network, region, -functions[2:])[:, 0]).all()), name


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 5.0, 20.0]))
def test_bounds_of_a_split_hold_where_the_split_holds(seed, scale):
    """Random splits of random neurons, some from both sides, with random multipliers, against points inside them."""
    network = networks(seed, scale)["mixed"]
    region = InputRegion.around(torch.rand(1, 1, 4, 4), 0.5)
    graph = graph_of(network, (1, 4, 4))
    box, execution = Interval(region.lower, region.upper), Execution(Arithmetic.FLOAT32, torch.float32)
    with torch.no_grad():
        bounded, _ = propagate(graph, box, execution=execution)
    points = region.lower + torch.rand(4000, 1, 4, 4) * (region.upper - region.lower)
    with torch.no_grad():
        values = graph.values(points)
    margins = torch.tensor([[[1.0, -1.0, 0.0]]])
    for position in graph.s_shaped:
        element = int(torch.randint(values[position][0].numel(), ()))
        inputs = values[graph.source(position)].flatten(1)[:, element]
        low, high = (float(inputs.quantile(share)) for share in (0.3, 0.8))
        splits = (Split(position, element, 1, 0.7, low), Split(position, element, -1, 0.2, high))
        subproblems = [Subproblem(0, 0, -torch.inf, chosen) for chosen in (splits, splits[:1], splits[1:])]
        found = bound(bounded, margins, subproblems, Ascent(iterations=6))
        for row, inside in enumerate(((inputs >= low) & (inputs <= high), inputs >= low, inputs <= high)):
            least = (values[-1][inside] * margins[0, 0]).sum(1).min()
            assert float(found.lower[row]) <= float(least)
        held, _ = apply_splits(bounded, subproblems)
        assert held.bounds[position].lower.flatten(1)[0, element] == torch.tensor(low)
        assert held.bounds[position].upper.flatten(1)[0, element] == torch.tensor(high)


def wave(scale):
    """One input: the margin y₀ − y₁ is a sum of sigmoids with known derivative, and has several minima."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 2)).eval()
    network[0].weight.data *= scale
    network[2].weight.data *= 3
    return network


@pytest.mark.parametrize("scale", [2.0, 8.0])
@pytest.mark.parametrize("inputs", [1, 2])
def test_verdicts_agree_with_the_exact_minimum_of_small_networks(scale, inputs):
    """A dense grid and a Lipschitz constant enclose the smallest margin; the bias puts it just above or below zero."""
    network = wave(scale)
    if inputs == 2:
        network = nn.Sequential(nn.Linear(2, 1), *network).eval()
    axis = torch.linspace(0, 1, 20001 if inputs == 1 else 801, dtype=torch.float64)
    grid = axis[:, None] if inputs == 1 else torch.cartesian_prod(axis, axis)
    exact = nn.Sequential(*network).double()
    with torch.no_grad():
        margins = exact(grid).diff(dim=1)[:, 0].neg()
        steep = 1.0
        for layer in exact:
            if isinstance(layer, nn.Linear):
                steep *= float(torch.linalg.matrix_norm(layer.weight, ord=torch.inf))
        steep *= 2
    network.float()
    spacing = float(axis[1]) / 2
    top = float(margins.min())
    bottom = top - steep * spacing
    image = torch.full((1, inputs), 0.5)
    for shift, expected in ((-bottom + 0.01, Verdict.UNSAT), (-top - 0.01, Verdict.SAT)):
        network[-1].bias.data[0] += shift
        (result,) = verify(network, image, torch.tensor([0]), 0.5, timeout=60)
        network[-1].bias.data[0] -= shift
        assert result.verdict is expected


@pytest.mark.parametrize("kind", ["dense", "convolutional", "residual", "mixed", "pooled"])
@pytest.mark.parametrize("stages", ["all", "splits only"])
def test_verdicts_are_never_contradicted(kind, stages, monkeypatch):
    if stages == "splits only":  # neither halving boxes nor an attack helps: sigmoids and ReLUs must be split
        monkeypatch.setattr("steadynet.verification.search.input_splitting.MOST_INPUTS", 0)
    found = []
    for seed, radius in ((0, 0.05), (1, 0.2)):
        network = networks(seed, 5.0)[kind]
        images = torch.rand(3, 1, 4, 4)
        labels = network(images).argmax(1)
        results = verify(network, images, labels, radius, timeout=1)
        region = InputRegion.around(images, radius)
        for index, result in enumerate(results):
            found.append(result.verdict)
            others = [other for other in range(3) if other != int(labels[index])]
            rows = torch.eye(3)[labels[index]] - torch.eye(3)[others]
            if result.verdict is Verdict.UNSAT:
                assert bool((lowest(network, region[index : index + 1], rows) > 0).all())
            if result.verdict is Verdict.SAT:
                assert int(network(result.counterexample[None]).argmax()) != int(labels[index])
            assert result.verdict is not Verdict.ERROR, result.reason
    assert Verdict.UNSAT in found


def test_splitting_sigmoids_proves_what_bounds_alone_do_not(monkeypatch):
    monkeypatch.setattr("steadynet.verification.search.input_splitting.MOST_INPUTS", 0)
    torch.manual_seed(2)
    network = nn.Sequential(nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 4)).eval()
    for parameter in network.parameters():
        parameter.data *= 3
    images = torch.rand(8, 4)
    results = verify(network, images, network(images).argmax(1), 0.2, timeout=10)
    assert DecidedBy.RELU_SPLITTING in [result.decided_by for result in results if result.verdict is Verdict.UNSAT]


def test_stages_for_piecewise_linear_networks_are_skipped(monkeypatch):
    """Condensed networks, both kinds of programs, leaves and earlier proofs never see a sigmoid; the others do."""

    def never(*arguments, **settings):
        raise AssertionError("a stage for piecewise linear networks was entered")

    for name in (
        "condensed_search.condense",
        "program_splitting.condense",
        "earlier_proofs.condense_each",
        "milp_attack.MilpModel",
        "leaf_settler.settle",
    ):
        monkeypatch.setattr(f"steadynet.verification.search.{name}", never)
    monkeypatch.setattr("steadynet.verification.search.input_splitting.MOST_INPUTS", 0)
    for kind in ("dense", "mixed", "pooled"):
        network = networks(1, 5.0)[kind]
        images = torch.rand(2, 1, 4, 4)
        results = verify(network, images, network(images).argmax(1), 0.2, timeout=1)
        assert all(result.verdict is not Verdict.ERROR for result in results), [result.reason for result in results]


def test_a_margin_that_is_always_zero_is_not_proved():
    """Two classes are computed by two copies of the same layers; whatever is split, the margin stays zero."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 5), nn.Sigmoid(), nn.Linear(5, 2)).eval()
    network[2].weight.data[1] = network[2].weight.data[0]
    network[2].bias.data[:] = torch.tensor([1e-9, 0.0])
    (result,) = BranchAndBound(timeout=2.0)(Properties.around(network, torch.rand(1, 3), torch.tensor([0]), 0.1))
    assert result.verdict in (Verdict.TIMEOUT, Verdict.UNKNOWN, Verdict.SAT)


def test_a_network_that_may_overflow_before_a_sigmoid_is_not_proved():
    """inf − inf is no number, although a sigmoid of anything lies between 0 and 1."""
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1), nn.Sigmoid(), nn.Linear(1, 2)).eval()
    with torch.no_grad():
        network[0].weight.copy_(3e38 * torch.eye(2))
        network[0].bias.fill_(3e38)
        network[1].weight.copy_(torch.tensor([[1.0, -1.0]]))
        network[3].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        network[3].bias.copy_(torch.tensor([2.0, 0.0]))
    (result,) = BranchAndBound(timeout=5.0)(Properties.around(network, torch.full((1, 2), 0.1), torch.tensor([0]), 0.1))
    assert result.verdict is not Verdict.UNSAT


@pytest.mark.parametrize("arithmetic", ["float32", "exact"])
def test_a_margin_below_the_error_of_a_library_is_proved_in_exact_arithmetic_only(arithmetic):
    """The smallest margin is tanh(1/2) + b ≈ 3e-7, and a library may be wrong by 9.5e-7."""
    network = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 2)).eval()
    with torch.no_grad():
        network[0].weight.fill_(1.0)
        network[0].bias.zero_()
        network[2].weight.copy_(torch.tensor([[1.0], [0.0]]))
        network[2].bias.copy_(torch.tensor([3e-7 - math.tanh(0.5), 0.0]))
    assert 1e-7 < math.tanh(0.5) + network[2].bias[0].item() < 5e-7
    properties = Properties.around(network, torch.full((1, 1), 0.75), torch.tensor([0]), 0.25)
    (result,) = BranchAndBound(timeout=5.0, arithmetic=arithmetic)(properties)
    assert (result.verdict is Verdict.UNSAT) == (arithmetic == "exact")
    assert result.verdict in (Verdict.UNSAT, Verdict.UNKNOWN, Verdict.TIMEOUT)


def test_other_verifiers_refuse_clearly():
    network = networks(0, 1.0)["dense"]
    images = torch.rand(2, 1, 4, 4)
    for result in Milp()(Properties.around(network, images, network(images).argmax(1), 0.01)):
        assert result.verdict is Verdict.ERROR
        assert "milp decides piecewise linear networks only, and this one has Sigmoid (layer '2')" in result.reason


def test_a_product_that_a_multiplier_cancels_was_rounded_all_the_same():
    """|a · slope| · max |z| is 0.75 · 8 = 6 and 0.5 · 3; only the first has a multiplier. 2u of it count."""
    products, multipliers = torch.tensor([[-0.75, 0.5]]), torch.tensor([[-0.75, 0.0]])
    bounds = Interval(torch.tensor([[-8.0, 1.0]]), torch.tensor([[2.0, 3.0]]))
    assert lost_by_cancelling(products, multipliers, bounds, None).tolist() == [12 * 2.0**-24]
    assert lost_by_cancelling(products, multipliers, bounds, torch.tensor([0])).tolist() == [12 * 2.0**-24]
