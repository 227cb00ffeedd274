"""Inner bounds that are refined on a condensed network: they hold, and are near those of the whole network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from random_networks import convolutional, dense, residual
from steadynet.bounds import condensed_refinement
from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import condense
from steadynet.bounds.condensed_refinement import refined_by_condensed
from steadynet.bounds.crown import propagate
from steadynet.bounds.optimised import Ascent, refined
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of

MEMORY = 2**28
ASCENT = Ascent(iterations=10, slope_rate=0.4)
BUILD = {"dense": lambda: dense(6, 3), "convolutional": lambda: convolutional(3), "residual": lambda: residual(3)}
CASES = [(kind, seed) for kind in BUILD for seed in range(6)]


def sampled(kind: str, seed: int) -> tuple[nn.Module, BoundedNetwork]:
    """A random network over a box, with every rounding counted."""
    torch.manual_seed(seed)
    shape = (6,) if kind == "dense" else (1, 4, 4)
    network = BUILD[kind]()
    network(torch.rand(2, *shape))  # gives lazy layers their sizes
    network = network.eval().requires_grad_(False)
    image = torch.rand(1, *shape)
    execution = Execution(Arithmetic.FLOAT32, torch.float32)
    with torch.no_grad():
        box = Interval(image - 0.3, image + 0.3)
        return network, propagate(graph_of(network, shape), box, MEMORY, execution=execution)[0]


def better_bounds(whole: BoundedNetwork) -> BoundedNetwork:
    return refined_by_condensed(condense(whole, torch.eye(3)[:1] - torch.eye(3)[1:], MEMORY), ASCENT)


def assert_they_hold(bounded: BoundedNetwork) -> None:
    """Every ReLU's input stays within its bounds, at random points and corners."""
    low, high = bounded.box
    shares = torch.rand(400, *low.shape[1:])
    shares[200:] = shares[200:].round()
    values = bounded.graph.values((low + shares * (high - low)).clamp(low, high))
    for relu, (lower, upper) in bounded.bounds.items():
        value = values[bounded.graph.source(relu)]
        assert bool(((lower <= value) & (value <= upper)).all())


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_they_hold_and_are_nearly_those_of_the_whole_network(kind, seed):
    _, whole = sampled(kind, seed)
    before = {relu: known.lower.clone() for relu, known in whole.bounds.items()}
    better = better_bounds(whole)
    assert_they_hold(better)
    expected = refined(whole, ASCENT, MEMORY)
    for relu, known in whole.bounds.items():
        torch.testing.assert_close(known.lower, before[relu])  # the given network stays as it is
        found, best = better.bounds[relu], expected.bounds[relu]
        assert bool((found.lower >= known.lower).all())
        assert bool((found.upper <= known.upper).all())
        width = (known.upper - known.lower).sum()
        assert (found.upper - found.lower).sum() - (best.upper - best.lower).sum() <= 0.05 * width


@pytest.mark.parametrize("kind", BUILD)
def test_they_hold_whatever_the_slopes_are(kind, monkeypatch):
    def nonsense(network, batch, *_):
        batch.slopes.copy_(5 * torch.randn_like(batch.slopes))

    monkeypatch.setattr(condensed_refinement, "ascend", nonsense)
    for seed in range(4):
        assert_they_hold(better_bounds(sampled(kind, seed)[1]))


def test_without_time_the_bounds_stay_as_they_are():
    _, whole = sampled("convolutional", 0)
    small = condense(whole, torch.eye(3)[:1] - torch.eye(3)[1:], MEMORY)
    same = refined_by_condensed(small, ASCENT, lambda: True)
    for relu, known in whole.bounds.items():
        torch.testing.assert_close(same.bounds[relu].lower, known.lower)
