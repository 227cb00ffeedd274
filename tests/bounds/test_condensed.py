"""The condensed network against the whole one: the same values, bounds and gradients, up to rounding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from random_networks import convolutional, dense, residual
from steadynet.bounds import condensed
from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import CondensedNetwork, condense, condensed_size
from steadynet.bounds.condensed_bounds import (
    Columns,
    SplitColumns,
    ascend,
    ascent_directions,
    lower,
    margins_at,
)
from steadynet.bounds.condensed_substitution import condensed_further
from steadynet.bounds.crown import OutOfTimeError, propagate
from steadynet.bounds.optimised import Ascent
from steadynet.bounds.whole_pass import whole_query
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of

MEMORY = 2**28
BUILD = {"dense": lambda: dense(6, 3), "convolutional": lambda: convolutional(3), "residual": lambda: residual(3)}


def sampled(kind: str, seed: int) -> tuple[nn.Module, BoundedNetwork, Tensor]:
    """A random network over a box, in float64, and its margins."""
    torch.manual_seed(seed)
    shape = (6,) if kind == "dense" else (1, 4, 4)
    network = BUILD[kind]()
    network(torch.rand(2, *shape))  # gives lazy layers their sizes
    network = network.double().eval().requires_grad_(False)
    image = torch.rand(1, *shape, dtype=torch.float64)
    box = Interval(image - 0.2, image + 0.2)
    with torch.no_grad():
        whole, _ = propagate(graph_of(network, shape), box, MEMORY)
    identity = torch.eye(3, dtype=torch.float64)
    return network, whole, identity[:1] - identity[1:]


def random_batch(network: CondensedNetwork, count: int, margins: int) -> Columns:
    """Columns with random slopes, and up to two splits with random multipliers each."""
    neuron = torch.randint(0, network.neurons, (2, count))
    keep = torch.stack([torch.ones(count, dtype=torch.bool), neuron[1] != neuron[0]])
    column = torch.arange(count).expand(2, count)
    sign = torch.randint(0, 2, (2, count)) * 2.0 - 1
    splits = SplitColumns(neuron[keep], column[keep], sign[keep].double(), torch.rand(2, count).double()[keep])
    slopes = torch.maximum(torch.rand(network.neurons, count).double(), network.floor)
    return Columns.of(network, torch.randint(0, margins, (count,)), slopes, splits)


CASES = [(kind, seed) for kind in BUILD for seed in range(6)]


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_values_and_bounds_are_those_of_the_whole_network(kind, seed):
    network, whole, margins = sampled(kind, seed)
    small = condense(whole, margins, MEMORY)
    assert small.is_finite()
    assert sum(layer.matrix.matrix.shape.numel() for layer in small.layers) == condensed_size(whole)
    points = whole.box.lower + (whole.box.upper - whole.box.lower) * torch.rand(7, *whole.box.lower.shape[1:])
    which = torch.randint(0, len(margins), (7,))
    expected = (network(points) * margins[which]).sum(1)
    torch.testing.assert_close(margins_at(small, which, points.flatten(1).t()), expected)
    if not small.neurons:
        return
    batch = random_batch(small, 9, len(margins))
    relaxed, query = whole_query(small.layers, batch, whole.relaxed(), margins)
    torch.testing.assert_close(lower(small, batch).lower, relaxed.lower(query).value.detach())


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_directions_are_the_gradients_of_the_bounds(kind, seed):
    _, whole, margins = sampled(kind, seed)
    small = condense(whole, margins, MEMORY)
    if not small.neurons:
        pytest.skip("every ReLU is stable")
    batch = random_batch(small, 5, len(margins))
    relaxed, query = whole_query(small.layers, batch, whole.relaxed(), margins)
    assert query.multipliers is not None
    assert query.slopes is not None
    tracked, slopes = {position: value.requires_grad_() for position, value in query.multipliers.items()}, query.slopes
    for values in slopes.values.values():
        values.requires_grad_()
    value = relaxed.lower(query).value.sum()
    on_slopes, on_multipliers = ascent_directions(small, batch, lower(small, batch))
    movable = batch.upper_shift > 0
    for layer in small.layers:
        (gradient,) = torch.autograd.grad(value, slopes.values[layer.position], retain_graph=True)
        expected = gradient.flatten(1)[:, layer.elements].t()
        mask = movable[layer.rows]
        torch.testing.assert_close(on_slopes[layer.rows][mask], expected[mask])
        here = (batch.splits.neuron >= layer.rows.start) & (batch.splits.neuron < layer.rows.stop)
        if layer.position in tracked:
            (gradient,) = torch.autograd.grad(value, tracked[layer.position], retain_graph=True)
            element = layer.elements[batch.splits.neuron[here] - layer.rows.start]
            signed = gradient.flatten(1)[batch.splits.column[here], element] * batch.splits.sign[here]
            torch.testing.assert_close(on_multipliers[here], signed)


def test_an_ascent_raises_bounds_and_keeps_slopes_and_multipliers_in_their_range():
    _, whole, margins = sampled("dense", 1)
    small = condense(whole, margins, MEMORY)
    small = replace(small, constants=small.constants - 100)  # bounds stay negative
    batch = random_batch(small, 8, len(margins))
    before = lower(small, batch).lower
    after = ascend(small, batch, Ascent(iterations=20, slope_rate=0.1, multiplier_rate=0.1)).lower
    assert float(after.mean()) > float(before.mean()) + 0.01
    assert bool((batch.slopes <= 1).all())
    assert bool((batch.slopes >= small.floor).all())
    assert bool((batch.splits.beta >= 0).all())


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_an_ascent_takes_the_same_way_whatever_the_scale_of_the_margins_is(scale):
    _, whole, margins = sampled("dense", 1)
    ways = []
    for factor in (1.0, scale):
        small = condense(whole, factor * margins, MEMORY)
        small = replace(small, constants=small.constants - 100 * factor)  # bounds stay negative
        torch.manual_seed(5)
        batch = random_batch(small, 8, len(margins))
        batch.splits.beta.mul_(factor)
        bounds = ascend(small, batch, Ascent(iterations=6, slope_rate=0.1, multiplier_rate=0.3)).lower
        ways.append((bounds / factor, batch.slopes, batch.splits.beta / factor))
    for one, other in zip(*ways, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)  # Adam divides by a little more than the gradient


@pytest.mark.parametrize("scale", [2.0**-14, 2.0**14])
def test_an_ascent_takes_the_same_way_whatever_the_scale_of_one_relu_is(scale):
    """The input of one ReLU is larger, and the weights behind it are smaller: the function is the same."""
    ways = []
    for factor in (1.0, scale):
        network, _, margins = sampled("dense", 1)
        linear = [layer for layer in network if isinstance(layer, nn.Linear)]
        for value in (linear[0].weight, linear[0].bias):
            value[:1] *= factor
        linear[1].weight[:, :1] /= factor
        box = Interval(torch.zeros(1, 6, dtype=torch.float64), torch.ones(1, 6, dtype=torch.float64))
        with torch.no_grad():
            small = condense(propagate(graph_of(network, (6,)), box, MEMORY)[0], margins, MEMORY)
        assert int(small.layers[0].elements[0]) == 0  # that ReLU is unstable
        small = replace(small, constants=small.constants - 10)  # bounds stay negative
        torch.manual_seed(5)
        batch = random_batch(small, 16, len(margins))
        batch.splits.beta[batch.splits.neuron == 0] /= factor
        ways.append(ascend(small, batch, Ascent(iterations=6, slope_rate=0.1, multiplier_rate=0.3)).lower)
    torch.testing.assert_close(*ways, rtol=1e-4, atol=1e-4)


def test_no_time_is_left():
    _, whole, margins = sampled("dense", 1)
    with pytest.raises(OutOfTimeError):
        condense(whole, margins, MEMORY, lambda: True)


@pytest.mark.parametrize(("kind", "seed"), CASES)
@pytest.mark.parametrize("share", [0.0, 1.1])  # of non-zero entries below which matrices are sparse: none, all
def test_substituting_further_is_condensing_anew(kind, seed, share, monkeypatch):
    monkeypatch.setattr(condensed, "SPARSE", share)
    network, whole, margins = sampled(kind, seed)
    small = condense(whole, margins, MEMORY)
    box = Interval(
        *((side + whole.box.lower + whole.box.upper) / 3 for side in whole.box)
    )  # a smaller box, same centre
    with torch.no_grad():
        inner, _ = propagate(graph_of(network, tuple(box.lower.shape[1:])), box, MEMORY)
    tighter = replace(whole, bounds=inner.bounds)
    further, anew = condensed_further(small, tighter), condense(tighter, margins, MEMORY)
    assert [layer.position for layer in further.layers] == [layer.position for layer in anew.layers]
    for one, other in zip(further.layers, anew.layers, strict=True):
        assert one.rows == other.rows
        assert torch.equal(one.elements, other.elements)
        torch.testing.assert_close(one.matrix.dense(), other.matrix.dense())
        torch.testing.assert_close(one.matrix.transposed.to_dense(), one.matrix.dense().t())
        torch.testing.assert_close(one.constant, other.constant)
    torch.testing.assert_close(further.margins, anew.margins)
    torch.testing.assert_close(further.constants, anew.constants)
    for name in ("bounds", "floor"):
        torch.testing.assert_close(getattr(further, name), getattr(anew, name))
    for name in ("lower_slope", "upper_slope", "upper_shift"):
        torch.testing.assert_close(getattr(further.lines, name), getattr(anew.lines, name))
