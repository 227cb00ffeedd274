"""Bounds that stop at the sign of a ReLU's input: as sound, as tight where it matters, with fewer backward passes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from helpers import convolutional, dense, residual
from steadynet.bounds import graph_of
from steadynet.bounds.backward import BoundedNetwork, RelaxedNetwork
from steadynet.bounds.crown import propagate
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution

NETWORKS = {
    "dense": (dense(5, 12, 12, 8, 3), (5,)),
    "convolutional": (convolutional().eval(), (1, 6, 6)),
    "residual": (residual().eval(), (1, 6, 6)),
    "pooled": (
        nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3)
        ),
        (1, 6, 6),
    ),
}
EXECUTION = Execution(Arithmetic.FLOAT32, torch.float32)


def boxes(shape: tuple[int, ...], radius: float) -> Interval:
    torch.manual_seed(1)
    images = torch.rand(4, *shape)
    return Interval((images - radius).clamp_min(0), (images + radius).clamp_max(1))


def bounded(graph: Graph, box: Interval, until_stable: bool) -> tuple[BoundedNetwork, list[Interval]]:
    with torch.no_grad():
        return propagate(graph, box, execution=EXECUTION, until_stable=until_stable)


def points(box: Interval) -> list[Tensor]:
    shares = [torch.zeros_like(box.lower), torch.ones_like(box.lower)]
    shares += [torch.rand_like(box.lower) for _ in range(20)] + [torch.rand_like(box.lower).round() for _ in range(20)]
    return [box.lower + share * (box.upper - box.lower) for share in shares]


@pytest.mark.parametrize("radius", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_value_lies_in_its_bounds(name, radius):
    network, shape = NETWORKS[name]
    graph, box = graph_of(network, shape), boxes(shape, radius)
    _, values = bounded(graph, box, until_stable=True)
    for point in points(box):
        with torch.no_grad():
            for value, interval in zip(graph.values(point), values, strict=True):
                assert bool(((interval.lower <= value) & (value <= interval.upper)).all())


@pytest.mark.parametrize("radius", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("name", NETWORKS)
def test_where_the_sign_is_open_both_bounds_are_those_of_crown(name, radius):
    network, shape = NETWORKS[name]
    graph, box = graph_of(network, shape), boxes(shape, radius)
    (whole, _), (quick, _) = (bounded(graph, box, until_stable=stop) for stop in (False, True))
    for one, other in zip(whole.relus(), quick.relus(), strict=True):
        assert torch.equal(one.stable(), other.stable())
        open_ = ~one.stable()
        torch.testing.assert_close(other.lower[open_], one.lower[open_], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(other.upper[open_], one.upper[open_], rtol=1e-4, atol=1e-5)


def passes(graph: Graph, box: Interval, until_stable: bool, monkeypatch) -> tuple[int, BoundedNetwork]:
    """How many functions go into backward passes, and the bounds."""
    counts: list[int] = []
    lower = RelaxedNetwork.lower

    def counted(self, query, trail=None):
        counts.append(len(query))
        return lower(self, query, trail)

    with monkeypatch.context() as patched:
        patched.setattr(RelaxedNetwork, "lower", counted)
        network, _ = bounded(graph, box, until_stable)
    return sum(counts), network


def test_in_the_last_layer_a_stable_neuron_takes_one_function_and_an_unstable_one_two(monkeypatch):
    monkeypatch.setattr("steadynet.bounds.sharpening.LIKELY", (0.0,))
    graph, box = graph_of(dense(5, 12, 30, 3), (5,)), boxes((5,), 0.1)
    both, _ = passes(graph, box, False, monkeypatch)  # two for each neuron that intervals leave open
    taken, network = passes(graph, box, True, monkeypatch)
    unstable = int(network.relus()[1].unstable().sum())
    assert 0 < unstable < both // 2
    assert taken == both // 2 + unstable


@pytest.mark.parametrize("share", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("name", NETWORKS)
def test_both_bounds_at_once_are_those_of_two_passes(name, share, monkeypatch):
    network, shape = NETWORKS[name]
    graph, box = graph_of(network, shape), boxes(shape, 0.1)
    monkeypatch.setattr("steadynet.bounds.sharpening.LIKELY", (0.0,))
    _, one = passes(graph, box, True, monkeypatch)
    monkeypatch.setattr("steadynet.bounds.sharpening.LIKELY", (share,))
    _, other = passes(graph, box, True, monkeypatch)
    for expected, found in zip(one.relus(), other.relus(), strict=True):
        assert torch.equal(expected.stable(), found.stable())
        assert bool((found.lower >= expected.lower - 1e-5).all())
        assert bool((found.upper <= expected.upper + 1e-5).all())
        open_ = ~expected.stable()
        torch.testing.assert_close(found.lower[open_], expected.lower[open_], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.upper[open_], expected.upper[open_], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("second", [False, True])
def test_in_earlier_layers_neurons_that_are_always_active_get_a_second_bound_only_if_asked(second, monkeypatch):
    """Those that are never active get one bound in either case: such a ReLU is zero, however low its input."""
    monkeypatch.setattr("steadynet.bounds.sharpening.SECOND_BOUNDS", second)
    monkeypatch.setattr("steadynet.bounds.thinning.THINNING", False)  # it sums in another order
    graph, box = graph_of(dense(5, 12, 30, 30, 3), (5,)), boxes((5,), 0.1)
    both, whole = passes(graph, box, False, monkeypatch)
    taken, quick = passes(graph, box, True, monkeypatch)
    assert taken < both
    one, other = (network.relus()[1] for network in (whole, quick))
    inactive, active = one.upper <= 0, one.lower >= 0
    torch.testing.assert_close(one.upper[~active], other.upper[~active])
    torch.testing.assert_close(one.lower[~inactive], other.lower[~inactive])
    assert not torch.allclose(one.lower, other.lower)
    assert torch.allclose(one.upper, other.upper) is second


def test_a_leaky_relu_gets_both_bounds(monkeypatch):
    torch.manual_seed(0)
    layers = [nn.Linear(5, 12), nn.LeakyReLU(0.1), nn.Linear(12, 30), nn.LeakyReLU(0.1), nn.Linear(30, 3)]
    graph, box = graph_of(nn.Sequential(*layers), (5,)), boxes((5,), 0.1)
    assert passes(graph, box, True, monkeypatch)[0] == passes(graph, box, False, monkeypatch)[0]
