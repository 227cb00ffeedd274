"""What a search leaves for the next box: it must cover everything, and must not change what is true."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadynet.bounds.condensed import condense
from steadynet.bounds.crown import propagate
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.radius import RadiusSearch
from steadynet.verification.search import pipeline
from steadynet.verification.search.carry_over import CarryOver, Neurons, PartGroup, is_inside
from steadynet.verification.search.condensed_part import Part
from steadynet.verification.verifiers import make_verifier

INPUTS = 144  # more than are halved


def network(seed):
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Flatten(), nn.Linear(INPUTS, 20), nn.ReLU(), nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))
    return made.requires_grad_(False)


def images_of(model, count=2):
    images = torch.rand(count, 1, 12, 12)
    return images, model(images).argmax(1)


def decide(model, image, label, eps, carried=()):
    verifier, found = make_verifier("branch_and_bound", {"timeout": 20.0, "clock": "cpu"}), []
    verifier.verify(Properties.around(model, image, label, eps), lambda index, result: found.append(result), carried)
    return found[0]


@pytest.fixture(scope="module")
def searched():
    """Searches with reuse for radii close to where the networks' labels change."""
    found = []
    patch = pytest.MonkeyPatch()
    patch.setattr(pipeline, "FIRST_LOOK", 1)  # so that most proofs are left to the last search
    for seed in range(3):
        model = network(seed)
        images, labels = images_of(model, 1)
        verifier = make_verifier("branch_and_bound", {"timeout": 5.0, "clock": "cpu"})
        search = RadiusSearch(model, images, labels, verifier, 0.3, 0.002)
        search.run()
        found.append((model, images, labels, search))
    patch.undo()
    return found


def test_radii_found_with_reuse_are_those_that_are_true(searched):
    """A search without reuse proves what was proved; a counterexample is one."""
    for model, images, labels, search in searched:
        for row, radius in enumerate(search.found):
            image, label = images[row : row + 1], labels[row : row + 1]
            assert radius.refuted is not None
            assert radius.proved < radius.refuted <= radius.proved + 0.002
            assert decide(model, image, label, radius.proved).verdict is Verdict.UNSAT
            assert int(model(radius.counterexample[None]).argmax()) != int(label)


def test_what_a_proof_leaves_covers_every_input_of_any_box(searched):
    """Each random input, also outside the box of the proof, lies in one of the parts of each margin."""
    groups = 0
    for model, images, _, search in searched:
        graph = graph_of(model, (1, 12, 12))
        for image, carried in zip(images, search.carried, strict=True):
            points = (image + 0.3 * (2 * torch.rand(500, 1, 12, 12) - 1)).clamp(0, 1)
            values = graph.values(points)
            for parts in carried.parts.values():
                groups += 1
                inside = torch.zeros(500, dtype=torch.bool)
                for group in parts:
                    z = torch.cat(
                        [values[graph.source(at)].flatten(1)[:, elements] for at, elements in group.layers], 1
                    )
                    for part in group.parts:
                        signs = torch.tensor(part.signs, dtype=z.dtype)
                        inside |= (z[:, list(part.neurons)] * signs >= 0).all(1)
                assert bool(inside.all())
    assert groups  # some proofs needed splits


def condensed(low):
    """ReLUs of x − 0.5 and x − 0.9 for x in [low, 1], and the network without those whose sign is known."""
    made = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).requires_grad_(False)
    made[0].weight.data, made[0].bias.data = torch.ones(2, 1), torch.tensor([-0.5, -0.9])
    box = Interval(torch.tensor([[low]]), torch.tensor([[1.0]]))
    whole, _ = propagate(graph_of(made, (1,)), box)
    return condense(whole, torch.eye(2)[:1], 1 << 20)


def test_parts_in_a_box_where_a_sign_is_known():
    """Above 0.6, the first ReLU is active: the part that holds it there loses this split, and the others are empty."""
    larger, smaller = condensed(0.0), condensed(0.6)
    assert (larger.neurons, smaller.neurons) == (2, 1)
    slopes = torch.tensor([0.25, 0.75]).half()
    parts = tuple(
        Part(0, -1.0, neurons, signs, tuple(0.5 for _ in signs), slopes)
        for neurons, signs in (((0, 1), (1, 1)), ((0, 1), (1, -1)), ((0,), (-1,)))
    )
    layers = tuple(Neurons(layer.position, layer.elements) for layer in larger.layers)
    carried = CarryOver(parts={0: (PartGroup(layers, parts),)})
    started, empty = carried.start(0, smaller)
    assert [(part.neurons, part.signs, part.betas) for part in started] == [((0,), (1,), (0.5,)), ((0,), (-1,), (0.5,))]
    assert all(part.slopes.tolist() == [0.75] for part in started)
    assert [group.parts for group in empty] == [parts[2:]]
    assert carried.start(1, smaller) is None
    carried.keep_proof(smaller, started, {0: empty})  # a larger box needs all of them again
    again, none = carried.start(0, larger)
    assert sorted((part.neurons, part.signs) for part in again) == [((0,), (-1,)), ((1,), (-1,)), ((1,), (1,))]
    assert not any(group.parts for group in none)


def test_a_proof_is_found_again_from_its_parts(searched):
    for model, images, labels, search in searched:
        for row, carried in enumerate(search.carried):
            if carried.parts:
                image, label = images[row : row + 1], labels[row : row + 1]
                parts = sum(len(group.parts) for groups in carried.parts.values() for group in groups)
                again = decide(model, image, label, search.found[row].proved, [carried])
                assert again.verdict is Verdict.UNSAT
                assert again.subproblems >= parts / 2  # it began with them; some may be empty
                assert decide(model, image, label, 0.3, [carried]).verdict is Verdict.SAT
                return
    pytest.fail("no proof needed splits")


def test_bounds_are_used_in_smaller_boxes_only():
    model = network(1)
    images, labels = images_of(model, 1)
    carried = CarryOver()
    assert decide(model, images, labels, 0.3, [carried]).verdict is Verdict.SAT
    box = carried.bounds_hold_in
    if box is not None:  # a counterexample may be found before there are bounds
        assert carried.known_in(box)
        wider = Interval(box.lower - 0.01, box.upper)
        assert not carried.known_in(wider)
    assert not is_inside(Interval(torch.zeros(1), torch.ones(1)), None)


def test_bounds_of_a_larger_box_hold_at_random_points(searched):
    for model, _, _, search in searched:
        graph = graph_of(model, (1, 12, 12))
        for carried in search.carried:
            box = carried.bounds_hold_in
            if box is None:
                continue
            points = box.lower + (box.upper - box.lower) * torch.rand(500, 1, 12, 12)
            values = graph.values(points)
            for position, (lower, upper) in carried.bounds.items():
                z = values[graph.source(position)]
                assert bool(((z >= lower - 1e-4) & (z <= upper + 1e-4)).all())
