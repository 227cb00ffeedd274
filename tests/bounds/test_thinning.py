"""Channels that are never active are left out of backward passes, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from helpers import Written, convolutional, dense
from steadynet.bounds import crown, graph_of
from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.crown import propagate
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.optimised import Ascent, refined
from steadynet.bounds.queries import BoundQuery
from steadynet.bounds.thinning import thinned
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution

EXECUTION = Execution(Arithmetic.FLOAT32, torch.float32)


def with_dead_channels(network: nn.Module, share: float) -> nn.Module:
    """Push a share of the neurons of every hidden layer so far down that they are never active."""
    layers = [layer for layer in network.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    for layer in layers[:-1]:
        layer.bias.data[: max(1, int(share * len(layer.bias)))] -= 50.0
    return network.eval()


def residual() -> nn.Module:
    """One ReLU that two convolutions read, whose sum goes on."""
    torch.manual_seed(0)

    def forward(net: Written, images: Tensor) -> Tensor:
        start = net.first(images).relu()
        return net.head((net.second(start) + net.third(start)).relu().flatten(1))

    return Written(
        forward,
        first=nn.Conv2d(1, 4, 3, stride=2, padding=1),
        second=nn.Conv2d(4, 3, 3, padding=1),
        third=nn.Conv2d(4, 3, 1),
        head=nn.Linear(27, 4),
    )


NETWORKS = {
    "dense": (lambda: dense(5, 12, 12, 8, 4), (5,)),
    "convolutional": (convolutional, (1, 6, 6)),
    "residual": (residual, (1, 6, 6)),
}


def boxes(shape: tuple[int, ...], eps: float = 0.1) -> Interval:
    torch.manual_seed(1)
    images = torch.rand(4, *shape)
    return Interval((images - eps).clamp_min(0), (images + eps).clamp_max(1))


def lower(network: BoundedNetwork, owner: Tensor, functions: Tensor) -> Tensor:
    with torch.no_grad():
        return network.relaxed().lower(BoundQuery(network.output, LinearFunctions(functions), owner)).proved


@pytest.mark.parametrize("share", [0.3, 0.8])
@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_are_the_same_to_within_rounding_and_hold(name, share):
    make, shape = NETWORKS[name]
    network, box = with_dead_channels(make(), share), boxes(shape)
    graph = graph_of(network, shape)
    with torch.no_grad():
        whole, _ = propagate(graph, box, execution=EXECUTION, until_stable=True)
    smaller = thinned(whole)
    assert sum(map(sum, smaller.shapes)) < sum(map(sum, whole.shapes))
    owner, functions = torch.arange(4).repeat(6), torch.randn(24, 4)
    found, before = (lower(one, owner, functions) for one in (smaller, whole))
    torch.testing.assert_close(found, before, rtol=1e-4, atol=1e-4)
    for _ in range(40):
        points = box.lower + torch.rand_like(box.lower).round() * (box.upper - box.lower)
        with torch.no_grad():
            values = network(points)
        assert bool(((values[owner] * functions).sum(1) >= found - 1e-4).all())


def test_by_hand_a_channel_that_is_never_active_has_no_say():
    """relu(x − 5) is zero for x in [0, 1], whatever it is multiplied by; relu(x + 1) = x + 1 is at least 1."""
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 2))
    for parameter, value in zip(
        network.parameters(),
        ([[1.0], [1.0]], [-5.0, 1.0], [[1e30, 1.0]], [0.0], [[1.0], [0.0]], [0.0, 0.0]),
        strict=True,
    ):
        parameter.data = torch.tensor(value)
    with torch.no_grad():
        whole, _ = propagate(graph_of(network, (1,)), Interval(torch.zeros(1, 1), torch.ones(1, 1)), until_stable=True)
    smaller = thinned(whole)
    assert smaller.shapes[1:3] == ((1,), (1,))
    assert float(lower(smaller, torch.tensor([0]), torch.tensor([[1.0, 0.0]]))) == pytest.approx(1.0)


def test_a_channel_that_is_active_in_one_box_only_is_kept_for_all():
    network = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 2))
    network[0].weight.data, network[0].bias.data = torch.ones(3, 1), torch.tensor([0.0, -2.0, -9.0])
    box = Interval(torch.tensor([[0.0], [2.5]]), torch.tensor([[1.0], [3.0]]))
    with torch.no_grad():
        whole, _ = propagate(graph_of(network, (1,)), box, until_stable=True)
    assert thinned(whole).shapes == ((1,), (2,), (2,), (2,))


def test_a_bound_that_is_not_a_number_counts_as_active():
    network = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 2))
    network[0].bias.data = torch.tensor([-50.0, -50.0, -50.0])
    with torch.no_grad():
        whole, _ = propagate(graph_of(network, (1,)), Interval(torch.zeros(1, 1), torch.ones(1, 1)), until_stable=True)
    whole.bounds[2].upper[0, 1] = torch.nan
    assert thinned(whole).shapes[2] == (1,)


def test_the_same_relus_are_stable_with_and_without(monkeypatch):
    for make, shape in NETWORKS.values():
        graph, box = graph_of(with_dead_channels(make(), 0.5), shape), boxes(shape)
        found = []
        for switch in (True, False):
            monkeypatch.setattr("steadynet.bounds.thinning.THINNING", switch)
            with torch.no_grad():
                found.append(propagate(graph, box, execution=EXECUTION, until_stable=True)[0])
        for one, other in zip(found[0].relus(), found[1].relus(), strict=True):
            assert torch.equal(one.stable(), other.stable())
            torch.testing.assert_close(one.upper, other.upper, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ending", [(), (nn.Flatten(),)], ids=["ReLU", "ReLU, flattened"])
def test_the_output_stays_whole_where_a_network_ends_with_a_relu(ending):
    """y = relu(x + b) for b = (1, −9, −9): the margins y₀ − y₁ and y₀ − y₂ are at least 1 for x in [0, 1]."""
    shape = (1, 1, 1) if ending else (1,)
    layer = nn.Conv2d(1, 3, 1) if ending else nn.Linear(1, 3)
    layer.weight.data.fill_(1.0)
    layer.bias.data = torch.tensor([1.0, -9.0, -9.0])
    network = nn.Sequential(layer, nn.ReLU(), *ending)
    box = Interval(torch.zeros(1, *shape), torch.ones(1, *shape))
    with torch.no_grad():
        whole, _ = propagate(graph_of(network, shape), box, until_stable=True)
    margins = torch.tensor([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
    torch.testing.assert_close(lower(thinned(whole), torch.tensor([0, 0]), margins), torch.ones(2))


@pytest.mark.parametrize("name", NETWORKS)
def test_refined_bounds_are_the_same_with_channels_left_out(name, monkeypatch):
    """Also those of a layer with dead channels of its own, which functions of single neurons speak of as a whole."""
    make, shape = NETWORKS[name]
    network, box = with_dead_channels(make(), 0.3), boxes(shape, 0.4)
    with torch.no_grad():
        whole, _ = propagate(graph_of(network, shape), box, execution=EXECUTION)
    found = []
    for least in (0, 1 << 40):
        monkeypatch.setattr(crown, "LEAST_THINNED", least)
        found.append(refined(whole, Ascent(iterations=3)))
    gained = 0.0
    for position, known in whole.bounds.items():
        for side in (0, 1):
            torch.testing.assert_close(
                found[0].bounds[position][side], found[1].bounds[position][side], rtol=1e-4, atol=1e-4
            )
        gained += float((found[0].bounds[position].lower - known.lower).sum())
    assert gained > 0
    for _ in range(40):
        points = box.lower + torch.rand_like(box.lower).round() * (box.upper - box.lower)
        values = whole.graph.values(points)
        for position, known in found[0].bounds.items():
            inner = values[whole.graph.source(position)]
            assert bool(((known.lower <= inner) & (inner <= known.upper)).all())
