"""Feature maps as lists of active neurons: the same bounds as of the whole network, with every rounding counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import exact_arithmetic
import soundness
from exact_arithmetic import ORDERS, Exact, Float, exact_input, float_input
from helpers import residual
from steadynet.bounds import crown, flattening, graph_of
from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.crown import propagate
from steadynet.bounds.exact_end import ExactEnd
from steadynet.bounds.flat_end import FlatEnd
from steadynet.bounds.flattening import flattened, is_flat
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.queries import BoundQuery
from steadynet.bounds.sparse_layers import MapNeurons, SparseConvolution
from steadynet.bounds.symbolic import SymbolicPass
from steadynet.bounds.symbolic_end import ends_before
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Dense, Interval, ReLU
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.verification.properties import Verdict
from steadynet.verification.verify import verify

EXECUTION = Execution(Arithmetic.FLOAT32, torch.float32)
SHAPE = (2, 6, 7)


@pytest.fixture(autouse=True)
def small_maps_count(monkeypatch):
    """Everything that is left to large networks happens on these small ones."""
    monkeypatch.setattr(crown, "LARGE_MAP", 1)
    monkeypatch.setattr(crown, "LEAST_FLATTENED", 1)
    monkeypatch.setattr(flattening, "LEAST_NEURONS", 1)
    monkeypatch.setattr(flattening, "MOST_ACTIVE", 1.0)


def deep(seed: int = 0) -> nn.Sequential:
    """Convolutions of several strides and paddings, of which many neurons are never active, and dense layers."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, (2, 3), stride=(2, 1), padding=(0, 1)), nn.ReLU(),
        nn.Conv2d(4, 3, 3, padding=(2, 1)), nn.ReLU(), nn.Conv2d(3, 4, 2, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(24, 6), nn.ReLU(), nn.Linear(6, 3),
    )  # fmt: skip
    for parameter in network.parameters():
        parameter.data.mul_(2)
    for layer in network[:7:2]:
        layer.bias.data += torch.linspace(0.5, -0.8, len(layer.bias))
    return network.eval().requires_grad_(False)


def box_of(radius: float, shape: tuple[int, ...] = SHAPE, count: int = 1) -> Interval:
    torch.manual_seed(1)
    images = torch.rand(count, *shape)
    return Interval((images - radius).clamp_min(0), (images + radius).clamp_max(1))


def bounded_by(graph: Graph, box: Interval, monkeypatch: pytest.MonkeyPatch, flat: bool) -> BoundedNetwork:
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(flattening, "FLATTENING", flat)
        return propagate(graph, box, execution=EXECUTION, until_stable=True)[0]


def points(box: Interval, count: int = 60) -> list[Tensor]:
    shares = [torch.zeros_like(box.lower), torch.ones_like(box.lower)]
    shares += [torch.rand_like(box.lower).round() for _ in range(count)] + [torch.rand_like(box.lower)]
    return [box.lower + share * (box.upper - box.lower) for share in shares]


@pytest.mark.parametrize(("stride", "padding", "size"), [(1, 1, (3, 3)), (2, 0, (2, 3)), ((2, 1), (1, 2), (4, 3))])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_sparse_convolution_goes_back_as_the_whole_one_does(stride, padding, size, is_first):
    torch.manual_seed(0)
    stride, padding = ((value, value) if isinstance(value, int) else value for value in (stride, padding))
    convolution = Convolution(torch.randn(4, 3, *size), torch.randn(4), stride, padding, (1, 1), 1)
    image = (3, 7, 6)
    shape = tuple(convolution.apply(torch.zeros(1, *image)).shape[1:])
    seen = torch.ones(image, dtype=torch.bool) if is_first else torch.rand(image) < 0.6
    computed = torch.rand(shape) < 0.6
    inputs, outputs = MapNeurons.where(seen), MapNeurons.where(computed)
    sparse = SparseConvolution(convolution, inputs, outputs, is_first)
    rows = torch.randn(5, len(outputs))
    whole = torch.zeros(5, computed.numel()).index_copy(1, outputs.elements, rows).view(5, *shape)
    back = torch.zeros(5, *image, requires_grad=True)  # the transpose is the gradient of the convolution
    F.conv2d(back, convolution.weight, None, stride, padding).backward(whole)
    assert back.grad is not None
    (found,) = sparse.backward(rows, [image if is_first else (len(inputs),)])
    wanted = back.grad if is_first else back.grad.flatten(1).index_select(1, inputs.elements)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    constant = (whole.sum((2, 3)).double() @ convolution.bias.double()).float()
    torch.testing.assert_close(sparse.constant(rows, torch.float32), constant, atol=1e-4, rtol=1e-5)


def test_a_sparse_convolution_takes_functions_back_and_nothing_else():
    every = MapNeurons.where(torch.ones(1, 2, 2, dtype=torch.bool))
    sparse = SparseConvolution(
        Convolution(torch.ones(1, 1, 1, 1), None, (1, 1), (0, 0), (1, 1), 1), every, every, False
    )
    assert sparse.constant(torch.ones(1, 4), torch.float32) == 0.0
    for method in (sparse.apply, sparse.interval, sparse.rounding):
        with pytest.raises(TypeError, match="only takes functions back"):
            method(torch.ones(1, 1, 2, 2))


@pytest.mark.parametrize("exact_ends", [False, True])
@pytest.mark.parametrize("radius", [0.0, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_are_those_of_the_whole_network_and_hold(monkeypatch, seed, radius, exact_ends):
    """With exact ends, they may be tighter: no pass ends early where symbolic intervals are loose."""
    monkeypatch.setattr(flattening, "EXACT_END", exact_ends)
    graph, box = graph_of(deep(seed), SHAPE), box_of(radius)
    flat, whole = (bounded_by(graph, box, monkeypatch, flat) for flat in (True, False))
    for relu, (lower, upper) in flat.bounds.items():
        for bound, known in ((lower, whole.bounds[relu].lower), (-upper, -whole.bounds[relu].upper)):
            alike = torch.minimum(bound, known) if exact_ends else bound
            torch.testing.assert_close(alike, known, atol=1e-4 if exact_ends else 2e-5, rtol=1e-4)
        for point in points(box):
            value = graph.values(point)[graph.source(relu)]
            assert bool(((lower <= value) & (value <= upper)).all())


@pytest.mark.parametrize(("early", "exact"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("radius", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("seed", range(4))
def test_functions_of_the_first_dense_layer_are_bounded_alike(monkeypatch, seed, radius, early, exact):
    graph, box = graph_of(deep(seed), SHAPE), box_of(radius)
    bounded = bounded_by(graph, box, monkeypatch, flat=False)
    position = graph.source(graph.relus[-1])
    if early or exact:
        symbolic = SymbolicPass(box, 1 << 24)
        assert bounded.rounding is not None
        for place, node in graph.numbered():
            lines = bounded.lines(place) if isinstance(node.operation, ReLU) else None
            symbolic.step(place, node, bounded.rounding, lines)
        bounded = replace(bounded, ends=ends_before(position, symbolic), symbolic=symbolic if exact else None)
    flat = flattened(bounded, position)
    assert flat is not None
    assert is_flat(flat)
    assert [type(end) for end in flat.ends.values()] == [ExactEnd] * exact + [FlatEnd] * early
    kept = sum(len(flat.graph.producer(place).operation.outputs) for place in (1, 3, 5, 7))
    assert kept < sum(torch.Size(bounded.shapes[place]).numel() for place in (1, 3, 5, 7))
    query = BoundQuery(position, LinearFunctions(torch.cat([torch.eye(6), -torch.eye(6), torch.randn(5, 6)])))
    query = replace(query, owner=torch.zeros(len(query.functions), dtype=torch.long))
    with torch.no_grad():
        one, other = (network.relaxed(position, early=early).lower(query).proved for network in (flat, bounded))
    torch.testing.assert_close(one, other, atol=2e-4 if exact else 5e-5, rtol=1e-4)
    for point in points(box):
        reached = query.functions.coefficients.double() @ graph.values(point)[position][0].double()
        assert bool((one <= reached).all())


@pytest.mark.parametrize("seed", range(3))
def test_rounding_at_one_point_is_counted(monkeypatch, seed):
    """The box is one point, so bounds differ from it by rounding alone: every order of sums lies inside."""
    graph, box = graph_of(deep(seed), SHAPE), box_of(0.0)
    bounded = bounded_by(graph, box, monkeypatch, flat=False)
    position = graph.source(graph.relus[-1])
    flat = flattened(bounded, position)
    assert flat is not None
    functions = LinearFunctions(torch.cat([torch.eye(6), -torch.eye(6)]))
    with torch.no_grad():
        proved = flat.relaxed(position).lower(BoundQuery(position, functions, torch.zeros(12, dtype=torch.long))).proved
    runs = [exact_arithmetic.values(graph, exact_input(box.lower), Exact())]
    runs += [exact_arithmetic.values(graph, float_input(box.lower), Float(order)) for order in ORDERS]
    for run in runs:
        for number, below, above in zip(run[position].flatten(), proved[:6].tolist(), proved[6:].tolist(), strict=True):
            assert below <= number <= -above


def test_a_bound_that_is_not_a_number_counts_as_active(monkeypatch):
    graph, box = graph_of(deep(), SHAPE), box_of(0.02)
    bounded = bounded_by(graph, box, monkeypatch, flat=False)
    position, relu = graph.source(graph.relus[-1]), graph.relus[0]
    never = (bounded.bounds[relu].upper[0] <= 0).nonzero()[0]
    before = flattened(bounded, position)
    bounded.bounds[relu].upper[(0, *never)] = torch.nan
    after = flattened(bounded, position)
    assert before is not None
    assert after is not None
    assert after.shapes[relu][0] == before.shapes[relu][0] + 1


def test_other_bounds_get_other_matrices(monkeypatch):
    """A sparse convolution is kept for the bounds that it was made for, and for no others."""
    graph = graph_of(deep(), SHAPE)
    bounded = bounded_by(graph, box_of(0.02), monkeypatch, flat=False)
    position = graph.source(graph.relus[-1])
    first, again = flattened(bounded, position), flattened(bounded, position)
    wide = bounded_by(graph, box_of(0.3), monkeypatch, flat=False)
    other = flattened(replace(wide, sparse=bounded.sparse), position)
    alone = flattened(wide, position)
    assert first is not None
    assert again is not None
    assert other is not None
    assert alone is not None
    for place in (1, 3, 5, 7):
        kept, same, new, right = (one.graph.producer(place).operation for one in (first, again, other, alone))
        assert kept is same
        assert new is not kept
        every = torch.eye(len(right.outputs))
        assert torch.equal(new.transposed @ every, right.transposed @ every)


def test_what_is_no_plain_chain_of_one_property_stays_whole(monkeypatch):
    graph, network = graph_of(residual().eval(), (1, 6, 6)), deep()
    branching = bounded_by(graph, box_of(0.02, (1, 6, 6)), monkeypatch, flat=False)
    assert all(flattened(branching, graph.source(relu)) is None for relu in graph.relus)
    graph = graph_of(network, SHAPE)
    position = graph.source(graph.relus[-1])
    assert flattened(bounded_by(graph, box_of(0.02, count=2), monkeypatch, flat=False), position) is None
    bounded = bounded_by(graph, box_of(0.02), monkeypatch, flat=False)
    assert flattened(bounded, graph.source(graph.relus[2])) is None  # a feature map, no dense layer
    monkeypatch.setattr(flattening, "MOST_ACTIVE", 0.01)
    assert flattened(bounded, position) is None
    monkeypatch.setattr(flattening, "MOST_ACTIVE", 1.0)
    monkeypatch.setattr(flattening, "LEAST_NEURONS", 1000)
    assert flattened(bounded, position) is None


def test_a_map_without_active_neurons_stays_whole(monkeypatch):
    network = deep()
    network[2].bias.data -= 100
    graph = graph_of(network, SHAPE)
    bounded = bounded_by(graph, box_of(0.02), monkeypatch, flat=True)
    assert flattened(bounded, graph.source(graph.relus[-1])) is None


def test_an_end_by_hand():
    # z₁ = 1 + 2d₁ − d₂ ± ¼ and z₂ = −1 + d₂ ± 0 on |d₁| ≤ ½, |d₂| ≤ 1: 3z₁ − 2z₂ = 5 + 6d₁ − 5d₂ ± ¾
    matrix = torch.tensor([[2.0, 0.0], [-1.0, 1.0]]).to_sparse_coo()
    sides = (torch.tensor(side).view(2, 1) for side in ([0.5, 1.0], [1.0, -1.0], [0.25, 0.0]))
    end = FlatEnd(matrix, *sides, lost=torch.tensor([0.125], dtype=torch.float64))
    assert float(end.lower(LinearFunctions(torch.tensor([[3.0, -2.0]])), None)) == 5 - 3 - 5 - 0.75 - 0.125


def test_a_relu_behind_the_flattening_is_met(monkeypatch):
    """All of the last map is active, so a list of its neurons is as long as the map, in another order.

    A brighter image activates class 1 by far more than the 0.1 that class 0 has.
    """
    monkeypatch.undo()  # the network is large enough as it is
    network = nn.Sequential(
        nn.Conv2d(1, 16, 1), nn.ReLU(), nn.Conv2d(16, 2, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.ReLU(),
        nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 2),
    ).eval()  # fmt: skip
    for parameter in network.parameters():
        parameter.data.zero_()
    network[0].weight.data[0], network[0].bias.data[1:] = 1, -1
    network[2].weight.data[0, 0], network[2].bias.data[:] = 1 / 64, 1
    network[6].weight.data[:, :4], network[6].bias.data[:] = 1, -6.001
    network[8].weight.data[1], network[8].bias.data[0] = 1, 0.1
    image = torch.full((1, 1, 16, 16), 0.5)
    assert network(image + 0.09).argmax() == 1
    (result,) = verify(network, image, torch.tensor([0]), eps=0.1)
    assert result.verdict is Verdict.SAT


@pytest.mark.parametrize("order", ["relu, dense", "relu, reshape, dense", "reshape, relu, dense", "reshape, dense"])
def test_only_a_dense_layer_reads_a_list_of_neurons(monkeypatch, order):
    torch.manual_seed(0)
    body = {"relu": nn.ReLU(), "dense": nn.Linear(12, 4), "reshape": nn.Flatten()}
    behind = [body[name] for name in order.split(", ")]
    network = nn.Sequential(nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), *behind, nn.ReLU(), nn.Linear(4, 2)).eval()
    network.requires_grad_(False)[0].bias[0] = -3.0  # never active
    graph, box = graph_of(network, (1, 3, 3)), box_of(0.1, (1, 3, 3))
    bounded = bounded_by(graph, box, monkeypatch, flat=False)
    dense = next(place for place, node in graph.numbered() if isinstance(node.operation, Dense))
    assert (flattened(bounded, dense) is None) == ("relu" in order)


@pytest.mark.parametrize("seed", [*range(6), 154, 544, 784, 829])  # the last ones have a ReLU behind the flattening
def test_networks_of_an_unusual_order_are_decided_as_by_programs(seed):
    case = soundness.make(seed, soundness.UNUSUAL)
    assert soundness.check(case, soundness.verifiers(group=1), in_time=False)[1] == []
