"""Symbolic intervals, and passes that end at them: they hold with every rounding counted, and match numbers by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import exact_arithmetic
from exact_arithmetic import ORDERS, Exact, Float, exact_input, float_input
from helpers import residual
from steadynet.bounds import crown, graph_of
from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.crown import propagate
from steadynet.bounds.linear_functions import LinearFunctions, single_neurons
from steadynet.bounds.queries import BoundQuery
from steadynet.bounds.substitution import through_convolution_on_patches
from steadynet.bounds.symbolic import SymbolicPass
from steadynet.bounds.symbolic_end import SymbolicEnd, added_up, ends_before
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Interval, ReLU
from steadynet.graph.rounding import Arithmetic, Execution, execution_error, gamma, underflow_unit

EXECUTION = Execution(Arithmetic.FLOAT32, torch.float32)


def deep(seed: int = 0, channels: int = 2, scale: float = 1.0) -> nn.Sequential:
    """Four convolutions of several strides and paddings, and two dense layers."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(channels, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, (2, 3), stride=(2, 1), padding=(0, 1)),
        nn.ReLU(), nn.Conv2d(4, 3, 3, padding=(2, 1)), nn.ReLU(), nn.Conv2d(3, 4, 2, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(24, 6), nn.ReLU(), nn.Linear(6, 3),
    )  # fmt: skip
    for parameter in network.parameters():
        parameter.data.mul_(2 * scale)
    return network.eval().requires_grad_(False)


SHAPE = (2, 6, 7)


def boxes(shape: tuple[int, ...], radius: float, count: int = 3) -> Interval:
    torch.manual_seed(1)
    images = torch.rand(count, *shape)
    return Interval((images - radius).clamp_min(0), (images + radius).clamp_max(1))


@pytest.fixture(autouse=True)
def small_maps_count(monkeypatch):
    monkeypatch.setattr(crown, "LARGE_MAP", 1)


def symbolic_of(graph: Graph, box: Interval) -> tuple[BoundedNetwork, SymbolicPass]:
    """The network with its inner bounds, and its symbolic intervals."""
    with torch.no_grad():
        bounded, _ = propagate(graph, box, execution=EXECUTION, until_stable=True)
        symbolic = SymbolicPass(box, 1 << 24)
        assert bounded.rounding is not None
        for position, node in graph.numbered():
            lines = bounded.lines(position) if isinstance(node.operation, ReLU) else None
            symbolic.step(position, node, bounded.rounding, lines)
    return bounded, symbolic


def points(box: Interval, count: int = 40) -> list[Tensor]:
    shares = [torch.zeros_like(box.lower), torch.ones_like(box.lower)]
    shares += [torch.rand_like(box.lower).round() for _ in range(count)] + [torch.rand_like(box.lower)]
    return [box.lower + share * (box.upper - box.lower) for share in shares]


@pytest.mark.parametrize("radius", [0.0, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_every_value_lies_in_its_symbolic_interval_and_in_the_bounds_of_the_network(seed, radius):
    graph, box = graph_of(deep(seed), SHAPE), boxes(SHAPE, radius)
    bounded, symbolic = symbolic_of(graph, box)
    assert {1, 2, 3, 4, 5, 6} <= symbolic.values.keys()
    for point in points(box):
        values = graph.values(point)
        for position, value in symbolic.values.items():
            lower, upper = value.interval()
            assert bool(((lower <= values[position]) & (values[position] <= upper)).all()), position
        for relu, (lower, upper) in bounded.bounds.items():
            seen = values[graph.source(relu)]
            assert bool(((lower <= seen) & (seen <= upper)).all()), relu


@pytest.mark.parametrize("seed", range(3))
def test_coefficients_are_the_gradients_where_every_relu_is_active(seed):
    network = deep(seed)
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            layer.bias.data.fill_(200)
    graph, box = graph_of(network, SHAPE), boxes(SHAPE, 0.1, count=2)
    _, symbolic = symbolic_of(graph, box)
    for position in range(1, 6):
        value = symbolic.values[position]
        gradients = torch.autograd.functional.jacobian(
            lambda image, position=position: graph.values(image[None])[position][0], box.lower[0]
        )
        places = gradients.flatten(0, 2)
        (rows, columns), patch = value.centre.shape[2:], value.patch
        windows = patch.cut(places).view(len(gradients), rows, columns, rows * columns, 2, *patch.size)
        for y, x in itertools.product(range(rows), range(columns)):
            expected = windows[:, y, x, y * columns + x]
            for one in range(2):
                inside = patch.inside(SHAPE, places)[y * columns + x]
                found = value.coefficients[:, one, y, x] * inside  # what lies in the padding does not count
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_of_a_network_by_hand():
    # z = 2x₁ − x₂ on [0, 1]²: centre ½, coefficients (2, −1), so z ∈ [−1, 2]; the chord has slope ⅔ and shift ⅔
    first, second = nn.Conv2d(1, 1, (1, 2)), nn.Conv2d(1, 1, 1)
    first.weight.data, first.bias.data = torch.tensor([[[[2.0, -1.0]]]]), torch.zeros(1)
    second.weight.data, second.bias.data = torch.full((1, 1, 1, 1), -3.0), torch.ones(1)
    graph = graph_of(nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(1, 2)), (1, 1, 2))
    _, symbolic = symbolic_of(graph, Interval(torch.zeros(1, 1, 1, 2), torch.ones(1, 1, 1, 2)))
    pre, relu, after = (symbolic.values[position] for position in (1, 2, 3))
    assert pre.coefficients.flatten().tolist() == [2.0, -1.0]
    assert [float(x) for x in (pre.centre, pre.spread, pre.radius)] == pytest.approx([0.5, 1.5, 0.0], abs=1e-4)
    assert relu.coefficients.flatten().tolist() == pytest.approx([4 / 3, -2 / 3], abs=1e-4)
    assert [float(x) for x in (relu.centre, relu.radius)] == pytest.approx([1 / 3 + 1 / 3, 1 / 3], abs=1e-4)
    assert after.coefficients.flatten().tolist() == pytest.approx([-4.0, 2.0], abs=1e-4)
    assert [float(x) for x in (after.centre, after.spread, after.radius)] == pytest.approx([-1.0, 3.0, 1.0], abs=1e-4)
    assert [float(x) for x in after.interval()] == pytest.approx([-5.0, 3.0], abs=1e-4)  # exact: [−5, 1]


@pytest.mark.parametrize("scale", [1.0, 1e-18])
@pytest.mark.parametrize("seed", range(3))
def test_rounding_at_one_point_is_inside(seed, scale):
    """The box is one point, so the radius is rounding alone: exact numbers and those of any order lie inside."""
    graph, box = graph_of(deep(seed, scale=scale), SHAPE), boxes(SHAPE, 0.0, count=1)
    _, symbolic = symbolic_of(graph, box)
    runs = [exact_arithmetic.values(graph, exact_input(box.lower), Exact())]
    runs += [exact_arithmetic.values(graph, float_input(box.lower), Float(order)) for order in ORDERS]
    checked = 0
    for position, value in symbolic.values.items():
        lower, upper = (side[0].flatten().tolist() for side in value.interval())
        for run in runs:
            for low, number, high in zip(lower, run[position].flatten(), upper, strict=True):
                assert low <= number <= high
                checked += 1
    assert checked > 1000


def test_every_kind_of_rounding_is_in_the_radius():
    """What the network rounds, what this pass rounds, and what underflow takes: the radius is at least their sum."""
    graph, box = graph_of(deep(), SHAPE), boxes(SHAPE, 0.0, count=1)
    bounded, symbolic = symbolic_of(graph, box)
    operation, value = graph.producer(1).operation, symbolic.values[1]
    assert bounded.rounding is not None
    recorded = bounded.rounding.values[1]
    network = execution_error(recorded.sums, EXECUTION, recorded.inputs).view(1, -1, 1, 1)
    own = gamma(2 * 9 + 1, torch.float32) * operation.size(box.lower)
    assert bool((value.radius >= network + own).all())
    assert float(value.radius.min()) < 2 * float((network + own).max())
    nothing = deep(scale=0.0)  # sums of zeros do not round, but for underflow
    radius = symbolic_of(graph_of(nothing, SHAPE), box)[1].values[1].radius
    assert float(radius.min()) >= 8 * 19 * underflow_unit(torch.float32)


@pytest.mark.parametrize("radius", [0.01, 0.1])
@pytest.mark.parametrize("seed", range(4))
def test_functions_lie_above_bounds_that_end_early(seed, radius):
    graph, box = graph_of(deep(seed), SHAPE), boxes(SHAPE, radius)
    bounded, symbolic = symbolic_of(graph, box)
    torch.manual_seed(seed)
    ends = ends_before(bounded.output, symbolic)
    assert list(ends) == [4]
    owner, rows = torch.arange(3).repeat_interleave(5), torch.randn(15, 3)
    query = BoundQuery(bounded.output, LinearFunctions(rows), owner)
    with torch.no_grad():
        early = replace(bounded, ends=ends).relaxed(early=True).lower(query).proved
        whole = bounded.relaxed().lower(query).proved
    assert bool((early > whole - 20 * radius * (1 + whole.abs())).all())  # they are not useless
    for point in points(box, 100):
        reached = (graph.values(point)[-1][owner] * rows).sum(1)
        assert bool((early <= reached).all())


@pytest.mark.parametrize("seed", range(3))
def test_windows_and_whole_maps_end_alike(seed):
    graph, box = graph_of(deep(seed), SHAPE), boxes(SHAPE, 0.05)
    bounded, symbolic = symbolic_of(graph, box)
    position, shape = 7, bounded.shapes[7]
    early = replace(bounded, ends=ends_before(position, symbolic)).relaxed(position, early=True)
    places = torch.ones(3, *shape, dtype=torch.bool).nonzero()
    windows, owner = single_neurons(places, shape, torch.float32)
    whole = torch.eye(torch.Size(shape).numel()).view(-1, *shape).repeat(3, 1, 1, 1)
    with torch.no_grad():
        found = [early.lower(BoundQuery(position, one, owner)).proved for one in (windows, LinearFunctions(whole))]
    assert windows.patch is not None
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)


def test_a_window_in_the_padding_ends_at_nothing():
    """A convolution with more padding than its kernel is wide: some of its neurons see nothing of the map."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(),
        nn.Conv2d(4, 2, 2, padding=3), nn.ReLU(), nn.Flatten(), nn.Linear(180, 2),
    )  # fmt: skip
    graph, box = graph_of(network.eval().requires_grad_(False), (2, 4, 5)), boxes((2, 4, 5), 0.1, count=1)
    bounded, symbolic = symbolic_of(graph, box)
    end, shape = SymbolicEnd(symbolic.values[4], symbolic.half), bounded.shapes[5]
    chosen = torch.ones(1, *shape, dtype=torch.bool).permute(0, 2, 3, 1).nonzero()[:, [0, 3, 1, 2]]
    functions, owner = single_neurons(chosen, shape, torch.float32)
    convolution = graph.producer(5).operation
    assert isinstance(convolution, Convolution)
    back = through_convolution_on_patches(functions, convolution, bounded.shapes[4], {})
    torch.testing.assert_close(
        end.lower(back, owner), end.lower(back.whole(bounded.shapes[4]), owner), atol=1e-4, rtol=0
    )


def test_an_end_by_hand():
    # of z = (x₁ + ½x₂) ± ¼ per channel on |d| ≤ 1: the function 3z₁ − 2z₂ with z₂ = −x₂ ± 0
    value = SymbolicPass(Interval(-torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2)), 100).values[0]
    centre = torch.tensor([0.5, 2.0]).view(1, 2, 1, 1)
    radius, spread = torch.tensor([0.25, 0.0]).view(1, 2, 1, 1), torch.tensor([1.5, 1.0]).view(1, 2, 1, 1)
    coefficients = torch.tensor([[1.0, 0.5], [0.0, -1.0]]).view(2, 1, 1, 1, 1, 1, 2)
    patch = type(value.patch)((1, 1), (1, 1), (0, 0), (1, 2))
    end = SymbolicEnd(type(value)(centre, radius, spread, patch, coefficients, 2), torch.ones(1, 1, 1, 2))
    found = end.lower(LinearFunctions(torch.tensor([3.0, -2.0]).view(1, 2, 1, 1)), None)
    assert float(found[0]) == pytest.approx(3 * 0.5 - 2 * 2 - (3 + (1.5 + 2)) - 0.75, abs=1e-4)
    assert float(found[0]) < 3 * 0.5 - 2 * 2 - 6.5 - 0.75


@given(places=st.integers(1, 6), size=st.integers(1, 7), stride=st.integers(1, 4))
def test_windows_are_added_up_where_they_overlap(places, size, stride):
    parts = torch.randint(-9, 10, (places, size, 2)).double()
    length = (places - 1) * stride + size
    expected = torch.zeros(-(-size // stride) * stride + (places - 1) * stride, 2, dtype=torch.float64)
    expected[:length] = F.fold(parts.permute(2, 1, 0), (length, 1), (size, 1), stride=(stride, 1))[:, 0, :, 0].t()
    assert torch.equal(added_up(parts, size, stride), expected)


@pytest.mark.parametrize("name", ["deep", "residual"])
def test_bounds_are_as_tight_as_without(monkeypatch, name):
    network, shape = (deep(), SHAPE) if name == "deep" else (residual().eval(), (1, 6, 6))
    graph, box = graph_of(network, shape), boxes(shape, 0.02)
    found = []
    for monkeypatched in (True, False):
        monkeypatch.setattr(crown, "SYMBOLIC", monkeypatched)
        with torch.no_grad():
            found.append(propagate(graph, box, execution=EXECUTION, until_stable=True)[0].relus())
    for new, old in zip(*found, strict=True):
        assert int(new.unstable().sum()) <= int(old.unstable().sum()) + 1
        both = new.unstable() & old.unstable()
        assert bool(((new.upper - new.lower)[both] <= (old.upper - old.lower)[both] * 1.05 + 1e-5).all())


def test_too_many_coefficients_are_left_to_backward_passes():
    box = boxes(SHAPE, 0.1)
    graph = graph_of(deep(), SHAPE)
    bounded, _ = symbolic_of(graph, box)
    assert bounded.rounding is not None
    entries = [0, 3 * 3 * 42 * 2 * 9]  # properties · channels · places · input channels · kernel
    for most, known in itertools.product(entries, [1]):
        symbolic = SymbolicPass(box, most)
        for position, node in list(graph.numbered())[:4]:
            lines = bounded.lines(position) if isinstance(node.operation, ReLU) else None
            symbolic.step(position, node, bounded.rounding, lines)
        assert (known in symbolic.values) == bool(most)
        assert 3 not in symbolic.values
