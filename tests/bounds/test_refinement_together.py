"""Bounds of inner neurons of several properties with any slopes: they hold, and no property has those of another."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from steadynet.bounds import refinement_together, thinning
from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.crown import propagate
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.refinement_by_slopes import NumberedNeurons
from steadynet.bounds.refinement_together import KnownSlopes, refined_together
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of

MEMORY = 2**28


def bounded_network(kind: str, never_active: int = 0) -> BoundedNetwork:
    """A random network over three boxes; convolutions see parts of the layer before."""
    torch.manual_seed(4)
    if kind == "dense":
        layers = [nn.Flatten(), nn.Linear(144, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 14)]
    else:
        layers = [
            nn.Conv2d(1, 3, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(3, 4, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(36, 14),
        ]
    network = nn.Sequential(*layers, nn.ReLU(), nn.Linear(14, 3)).requires_grad_(False)
    first = next(layer for layer in layers if isinstance(layer, (nn.Conv2d, nn.Linear)))
    first.bias.requires_grad_(False)[:never_active] -= 50.0
    image, execution = torch.rand(3, 1, 12, 12), Execution(Arithmetic.FLOAT32, torch.float32)
    box = Interval(image - 0.1, image + 0.1)
    graph = graph_of(network, (1, 12, 12))
    return propagate(graph, box, MEMORY, execution=execution)[0]


def loosened(bounded: BoundedNetwork) -> BoundedNetwork:
    """The same network with wider bounds of later layers: slopes at random hardly gain on those of CROWN."""
    bounds = dict(bounded.bounds)
    for position in bounded.graph.relus[1:]:
        lower, upper = bounds[position]
        bounds[position] = Interval(lower - (upper - lower), upper + (upper - lower))
    return replace(bounded, bounds=bounds)


def known_slopes(bounded: BoundedNetwork, seed: int) -> KnownSlopes:
    """Random slopes, some of them outside of [0, 1], for random neurons of all layers but the first."""
    torch.manual_seed(seed)
    layers, slopes, first = [], {}, 0
    for position in bounded.graph.relus:
        shape = bounded.shapes[position]
        elements = (torch.rand(torch.Size(shape).numel()) < 0.8).nonzero().flatten()
        if first:
            slopes[position] = 5 * torch.rand(2, len(elements), first) - 2
        layers.append(NumberedNeurons(position, tuple(shape), elements, slice(first, first + len(elements))))
        first += len(elements)
    return KnownSlopes(layers, slopes)


def inputs_of(bounded: BoundedNetwork, position: int, share: Tensor) -> Tensor:
    low, high = bounded.box
    return bounded.graph.values(low + share * (high - low))[bounded.graph.source(position)]


@pytest.mark.parametrize("kind", ["dense", "convolutional"])
@pytest.mark.parametrize("at_once", [7, 1024])
def test_bounds_from_any_slopes_hold(kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement_together, "AT_ONCE", at_once)
    bounded, tighter = loosened(bounded_network(kind)), 0
    better = bounded
    for seed in range(4):
        better = refined_together(better, {2: known_slopes(bounded, seed), 0: known_slopes(bounded, seed + 9)}, MEMORY)
    for position in bounded.graph.relus:
        before, after = bounded.bounds[position], better.bounds[position]
        assert torch.equal(before.lower[1], after.lower[1])  # which has no slopes
        assert torch.equal(before.upper[1], after.upper[1])
        assert (after.lower >= before.lower).all()
        assert (after.upper <= before.upper).all()
        tighter += int((after.lower > before.lower).sum()) + int((after.upper < before.upper).sum())
        for _ in range(100):
            values = inputs_of(bounded, position, torch.rand_like(bounded.box.lower).round())
            assert (after.lower <= values).all()
            assert (after.upper >= values).all()
    assert tighter > 20


@pytest.mark.parametrize("kind", ["dense", "convolutional"])
def test_a_property_has_the_bounds_that_it_has_by_itself(kind: str) -> None:
    bounded, noted = loosened(bounded_network(kind)), []
    known = {owner: known_slopes(bounded, owner) for owner in (1, 0, 2)}
    together = refined_together(bounded, known, MEMORY, lambda *told: noted.append(told))
    for owner, slopes in known.items():
        alone = refined_together(bounded.of_properties(torch.tensor([owner])), {0: slopes}, MEMORY)
        for position in bounded.graph.relus:
            for side, expected in zip(together.bounds[position], alone.bounds[position], strict=True):
                torch.testing.assert_close(side[owner], expected[0], rtol=1e-4, atol=1e-5)
    for owner, number, columns, slopes in noted:
        layer = known[owner].layers[number]
        given = known[owner].slopes[layer.position].flatten(0, 1)[columns].t()
        assert torch.equal(slopes, given)


@pytest.mark.parametrize("kind", ["dense", "convolutional"])
def test_relus_that_are_never_active_are_left_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = loosened(bounded_network(kind, never_active=2))
    known, found = {owner: known_slopes(bounded, owner) for owner in (2, 0)}, []
    for least in (True, False):
        monkeypatch.setattr(thinning, "MOST_KEPT", 1.0 if least else 0.0)
        found.append(refined_together(bounded, known, MEMORY))
    assert (bounded.bounds[bounded.graph.relus[0]].upper[:, :2] < 0).all()
    for position in bounded.graph.relus:
        for side, expected in zip(*(one.bounds[position] for one in found), strict=True):
            torch.testing.assert_close(side, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "convolutional"])
def test_the_slopes_of_crown_give_the_bounds_of_crown(kind: str) -> None:
    """The first bounds left out what the sign of a neuron makes useless; all that stayed open is the same."""
    bounded = bounded_network(kind)
    layers, slopes, first = [], {}, 0
    for position in bounded.graph.relus:
        every = torch.arange(torch.Size(bounded.shapes[position]).numel())
        before = [bounded.lines(layer.position).lower_slope[1].flatten() for layer in layers]
        if before:
            slopes[position] = torch.cat(before).expand(2, len(every), -1)
        layers.append(
            NumberedNeurons(position, tuple(bounded.shapes[position]), every, slice(first, first + len(every)))
        )
        first += len(every)
    better = refined_together(bounded, {1: KnownSlopes(layers, slopes)}, MEMORY)
    for position in bounded.graph.relus:
        for side, expected in zip(better.bounds[position], bounded.bounds[position], strict=True):
            torch.testing.assert_close(side, expected, rtol=1e-4, atol=1e-5)


def test_slopes_are_pulled_into_their_range_and_stable_relus_keep_theirs() -> None:
    bounded = bounded_network("convolutional")
    first = bounded.graph.relus[0]
    known = known_slopes(bounded, 0)
    lines = bounded.lines(first)
    owner = torch.ones(4, dtype=torch.long)
    slopes = torch.tensor([[-1.0], [0.25], [0.5], [7.0]]).expand(4, known.layers[0].rows.stop)
    piece = refinement_together._Piece(1, known.layers[:2], torch.arange(4), slopes)
    whole = LinearFunctions(torch.ones(4, *bounded.shapes[first]))
    found = refinement_together.GivenSlopes.of(bounded, [piece]).at(first, whole, owner, lines).flatten(1)
    named = torch.zeros(found.shape[1], dtype=torch.bool)
    named[known.layers[0].elements] = True
    unstable = bounded.bounds[first].unstable()[1].flatten()
    assert (named & unstable).any()
    assert (found[:, named & unstable] == torch.tensor([[0.0], [0.25], [0.5], [1.0]])).all()
    assert (found[:, ~(named & unstable)] == lines.lower_slope[1].flatten()[~(named & unstable)]).all()
