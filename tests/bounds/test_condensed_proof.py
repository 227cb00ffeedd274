"""Proofs on condensed networks: rows, bounds and the roundings that they count, against points and float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from random_networks import convolutional, dense, residual
from steadynet.bounds import relaxation
from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import CondensedNetwork, condense, condense_each
from steadynet.bounds.condensed_bounds import Columns, SplitColumns, lower
from steadynet.bounds.condensed_proof import CondensedProof, tightened
from steadynet.bounds.crown import propagate
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.precision import in_float64
from steadynet.bounds.queries import BoundQuery
from steadynet.graph.operations import Convolution, Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of

MARGINS = torch.eye(3)[:1] - torch.eye(3)[1:]
SCALES = {"plain": 1.0, "large": 300.0}


def leaky() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.LeakyReLU(0.1), nn.Linear(12, 10), nn.LeakyReLU(0.1), nn.Linear(10, 3))


BUILD = {
    "dense": lambda: dense(6, 3), "convolutional": lambda: convolutional(3), "residual": lambda: residual(3),
    "leaky": leaky,
}  # fmt: skip
CASES = [(kind, seed) for kind in BUILD for seed in range(4)]


def bounded_network(kind: str, seed: int, scale: float = 1.0, boxes: int = 1) -> tuple[nn.Module, BoundedNetwork]:
    """A random network in float32 over some boxes, with every rounding counted."""
    torch.manual_seed(seed)
    shape = (6,) if kind in ("dense", "leaky") else (1, 4, 4)
    network = BUILD[kind]()
    network(torch.rand(2, *shape))  # gives lazy layers their sizes
    network = network.eval().requires_grad_(False)
    for parameter in network.parameters():
        parameter.mul_(scale if parameter.dim() > 1 else 1.0)
    image = torch.rand(boxes, *shape)
    execution = Execution(Arithmetic.FLOAT32, torch.float32)
    with torch.no_grad():
        bounded, _ = propagate(graph_of(network, shape), Interval(image - 0.2, image + 0.2), 2**28, execution=execution)
    return network, bounded


def condensed_of(whole: BoundedNetwork) -> CondensedNetwork:
    return condense_each([whole], whole, MARGINS[None], 2**28, proofs=True)[0]


def points_in(box: Interval, count: int) -> Tensor:
    inside = box.lower + torch.rand(count, *box.lower.shape[1:]) * (box.upper - box.lower)
    return torch.minimum(torch.maximum(inside, box.lower), box.upper)


def relu_inputs(whole: BoundedNetwork, network: CondensedNetwork, points: Tensor) -> tuple[Tensor, Tensor]:
    """The inputs of the unstable ReLUs and their outputs, as the graph computes them: (points, neurons) each."""
    values = whole.graph.values(points)
    places = [(layer, whole.graph.source(layer.position)) for layer in network.layers]
    inputs = [values[source].flatten(1)[:, layer.elements] for layer, source in places]
    outputs = [values[layer.position].flatten(1)[:, layer.elements] for layer, _ in places]
    return torch.cat(inputs, 1), torch.cat(outputs, 1)


def random_batch(network: CondensedNetwork, count: int, own_signs: Tensor) -> Columns:
    """Random slopes, some of them outside of [0, 1], and two splits per column that hold at the point of a column."""
    neuron = torch.stack([torch.randperm(network.neurons)[:2] for _ in range(count)]).t()
    column = torch.arange(count).expand(2, count)
    sign = own_signs[column, neuron]
    splits = SplitColumns(neuron.flatten(), column.flatten(), sign.flatten(), 2 * torch.rand(2 * count) - 0.2)
    batch = Columns.of(network, torch.randint(0, 2, (count,)), 1.4 * torch.rand(network.neurons, count) - 0.2, splits)
    batch.slopes = 1.4 * torch.rand(network.neurons, count) - 0.2
    return batch


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_rows_are_as_close_to_the_network_as_they_say(kind, seed, scale):
    _, whole = bounded_network(kind, seed, SCALES[scale])
    network, points = condensed_of(whole), points_in(whole.box, 400)
    assert network.errors is not None
    of_neurons, of_margins = network.errors
    exact, off = in_float64(whole), torch.zeros(())
    for graph, inputs in ((whole, points), (exact, points.double())):  # run in float32, and exactly
        z, r = (side.double() for side in relu_inputs(graph, network, inputs))
        known = torch.cat([inputs.flatten(1).double(), r], 1)
        for layer in network.layers:
            row = layer.matrix.dense().double()
            found = known[:, : row.shape[1]] @ row.t() + of_neurons.constants[layer.rows]
            difference = (found - z[:, layer.rows]).abs().amax(0)
            assert (difference <= of_neurons.errors[layer.rows]).all()
            sizes = known[:, : row.shape[1]].abs() @ row.abs().t() + of_neurons.constants[layer.rows].abs()
            assert (sizes.amax(0) <= of_neurons.sizes[layer.rows] * (1 + 1e-12)).all()
            off = torch.maximum(off, difference.max())
        margins = graph.graph.values(inputs)[-1].double() @ MARGINS.double().t()
        found = known @ network.margins.double() + of_margins.constants
        assert ((found - margins).abs().amax(0) <= of_margins.errors).all()
    assert off > 0  # there is something to count


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_bounds_hold_at_points_where_the_splits_do(kind, seed, scale):
    _, whole = bounded_network(kind, seed, SCALES[scale])
    network, points = condensed_of(whole), points_in(whole.box, 300)
    z, _ = relu_inputs(whole, network, points)
    proof, batch = CondensedProof(network), random_batch(network, 300, torch.where(z >= 0, 1.0, -1.0))
    found, doubtful = proof.bounds(batch)
    margins = whole.graph.values(points)[-1] @ MARGINS.t()
    own = margins[torch.arange(300), batch.margin]
    assert (found <= own).all()
    assert not (doubtful & (found > 0)).any()
    if scale == "plain":  # and they are of use
        batch.splits.beta.clamp_min_(0)
        assert (lower(network, replace(batch, slopes=batch.slopes.clamp(0, 1))).lower - found).median() < 1e-3


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_what_is_lost_is_no_less_than_the_rounding_of_the_pass(kind, seed):
    _, whole = bounded_network(kind, seed, 300.0)
    network = condensed_of(whole)
    assert network.errors is not None
    without = [replace(rows, errors=0 * rows.errors) for rows in network.errors]  # the rows are what they are here
    network = replace(network, errors=(without[0], without[1]))
    batch = random_batch(network, 300, torch.randint(0, 2, (300, network.neurons)) * 2.0 - 1)
    batch.splits.beta.clamp_min_(0)
    proof = CondensedProof(network)
    found, _ = proof.bounds(batch)
    assert network.errors is not None
    rows = [replace(layer, matrix=_double(layer.matrix), constant=layer.constant.double()) for layer in network.layers]
    exact = replace(  # the same rows and lines, in float64
        network, layers=tuple(rows), margins=network.margins.double(), constants=network.errors[1].constants,
        bounds=Interval(*(side.double() for side in network.bounds)),
        lines=relaxation.Relaxation(
            network.lines.lower_slope.double(), network.lines.upper_slope.double(), network.lines.upper_shift.double()
        ),
        floor=network.floor.double(), box=Interval(*(side.double() for side in network.box)),
    )  # fmt: skip
    for layer, known in zip(exact.layers, network.layers, strict=True):
        layer.constant.copy_(network.errors[0].constants[known.rows])
    splits = batch.splits
    held = SplitColumns(splits.neuron, splits.column, splits.sign.double(), splits.beta.double())
    slopes = torch.maximum(batch.slopes.double().clamp(0, 1), exact.floor)
    expected = lower(exact, Columns.of(exact, batch.margin, slopes, held)).lower
    assert (found <= expected).all()
    proof._lost, proof._lost_on_margins = 0 * proof._lost, 0 * proof._lost_on_margins
    assert (proof.bounds(batch)[0] > expected).any()  # not so without what is subtracted


def _double(matrix):
    dense_form = matrix.dense().double()
    return type(matrix)(dense_form, dense_form.t().contiguous())


@pytest.mark.parametrize("kind", BUILD)
def test_tighter_lines_of_the_same_rows_hold_too(kind):
    for seed in range(4):
        _, whole = bounded_network(kind, seed)
        network, points = condensed_of(whole), points_in(whole.box, 300)
        z, _ = relu_inputs(whole, network, points)
        bounds = dict(whole.bounds)  # as tight as the points allow, so that some ReLUs are stable now
        for layer in network.layers:
            lowest, highest = (side.flatten().clone() for side in bounds[layer.position])
            lowest[layer.elements] = z[:, layer.rows].amin(0)
            highest[layer.elements] = z[:, layer.rows].amax(0)
            shape = bounds[layer.position].lower.shape
            bounds[layer.position] = Interval(lowest.view(shape), highest.view(shape))
        proof = CondensedProof(network)
        batch = random_batch(network, 300, torch.where(z >= 0, 1.0, -1.0))
        before, _ = proof.bounds(batch)
        proof.network = tightened(network, replace(whole, bounds=bounds))
        found, _ = proof.bounds(batch)
        margins = whole.graph.values(points)[-1] @ MARGINS.t()
        assert (found <= margins[torch.arange(300), batch.margin]).all()
        assert (found - before).median() >= 0
        slopes = torch.rand(network.layers[-1].rows.start, 2 * len(network.layers[-1].elements))
        rows = torch.arange(len(network.layers[-1].elements)).repeat(2)
        sign = torch.ones(len(rows)).index_fill_(0, torch.arange(len(rows) // 2), -1.0)
        last = proof.neuron_bounds(network.layers[-1], rows, sign, slopes)
        assert (last <= (z[:, network.layers[-1].rows][:, rows] * sign).amin(0)).all()


@pytest.mark.parametrize("kind", BUILD)
def test_several_properties_are_condensed_as_each_by_itself(kind):
    _, bounded = bounded_network(kind, 5, boxes=4)
    wholes = [bounded.of_properties(torch.tensor([number])) for number in range(4)]
    found = condense_each(wholes, bounded, MARGINS.repeat(4, 1, 1), 2**28, proofs=True)
    for network, whole in zip(found, wholes, strict=True):
        alone = condense(whole, MARGINS, 2**28)
        torch.testing.assert_close(network.margins, alone.margins)
        torch.testing.assert_close(network.constants, alone.constants)
        for layer, other in zip(network.layers, alone.layers, strict=True):
            assert torch.equal(layer.elements, other.elements)
            torch.testing.assert_close(layer.matrix.dense(), other.matrix.dense())
            torch.testing.assert_close(layer.constant, other.constant)


@pytest.mark.parametrize("kind", BUILD)
def test_a_pass_that_looks_at_unstable_relus_only_gives_the_same_bounds(kind, monkeypatch):
    _, bounded = bounded_network(kind, 6, boxes=4)
    owner = torch.tensor([0, 1, 1, 3])
    query = BoundQuery(bounded.output, LinearFunctions(MARGINS[[0, 1, 0, 1]]), owner)
    found = []
    for share in (-1.0, 1.0):
        monkeypatch.setattr(relaxation, "FEW_UNSTABLE", share)
        found.append(bounded.relaxed().lower(query))
    torch.testing.assert_close(found[0].value, found[1].value)
    torch.testing.assert_close(found[0].error, found[1].error)


@pytest.mark.parametrize("sides", [(torch.nan, torch.nan), (-torch.inf, torch.inf), (torch.nan, 1.0)])
def test_bounds_that_are_no_numbers_prove_nothing(sides):
    _, whole = bounded_network("dense", 0)
    first = whole.graph.relus[0]
    known = Interval(*(side.clone() for side in whole.bounds[first]))
    known.lower[0, 2], known.upper[0, 2] = sides
    broken = replace(whole, bounds={**whole.bounds, first: known})
    query = BoundQuery(broken.output, LinearFunctions(MARGINS))
    assert (broken.relaxed().lower(query).proved == -torch.inf).all()
    network = condensed_of(broken)
    batch = random_batch(network, 50, torch.ones(50, network.neurons))
    batch.splits = batch.splits.restricted(torch.arange(0), 50)
    assert (CondensedProof(network).bounds(batch)[0] == -torch.inf).all()


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "groups"),
    [((4, 4), (2, 2), 1, 1, 1), ((3, 5), (2, 3), 1, 1, 1), ((3, 3), (1, 1), 1, 1, 2), ((3, 3), (2, 2), 0, 2, 1),
     ((2, 2), (3, 3), 0, 1, 1)],
)  # fmt: skip
def test_as_many_terms_are_counted_as_a_coefficient_is_the_sum_of(kernel, stride, padding, dilation, groups):
    weight = torch.ones(6, 4 // groups, *kernel)
    pair = (padding, padding), (dilation, dilation)
    convolution = Convolution(weight, None, stride, *pair, groups)
    outputs = convolution.apply(torch.zeros(1, 4, 17, 19)).shape[1:]
    terms = convolution.transposed(torch.ones(1, *outputs), (4, 17, 19))  # sums of ones: how many there are
    counted = convolution.rounding(torch.ones(1, 4, 17, 19)).transposed_terms
    assert terms.max() <= counted
    assert terms.max() == counted or dilation > 1
    biased = replace(convolution, bias=torch.rand(6))
    rows = torch.rand(2, *outputs)
    torch.testing.assert_close(
        biased.constant(rows, torch.float64), rows.double().sum((2, 3)) @ biased.bias.double(), rtol=1e-5, atol=1e-5
    )
