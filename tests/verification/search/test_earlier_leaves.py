"""The leaves of an earlier proof: their bounds hold, and what is left out is empty."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from steadynet.bounds import whole_pass
from steadynet.bounds.condensed import condense_each
from steadynet.bounds.condensed_bounds import SplitColumns
from steadynet.bounds.condensed_proof import CondensedProof
from steadynet.bounds.crown import propagate
from steadynet.bounds.extraction import RowErrors
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.queries import BoundQuery, Trail
from steadynet.bounds.refinement_by_slopes import NumberedNeurons
from steadynet.bounds.thinning import thinned_with_places
from steadynet.bounds.whole_pass import WholePass
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of
from steadynet.verification.search.earlier_leaves import EarlierLeaves, held_of
from steadynet.verification.search.earlier_trial import LeafTrial
from steadynet.verification.search.held_lines import HeldLines
from steadynet.verification.search.property_batch import PropertyBatch, SearchState

MARGINS = torch.tensor([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])


@pytest.fixture(scope="module")
def whole():
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 3))
    network.requires_grad_(False)
    network[2].bias[4] += 20.0  # always active
    network[0].bias[:3] -= 20.0  # never active
    network[2].bias[7:9] -= 20.0
    box = Interval(torch.full((1, 5), -0.6), torch.full((1, 5), 0.6))
    execution = Execution(Arithmetic.FLOAT32, torch.float32)
    bounded, _ = propagate(graph_of(network, (5,)), box, 1 << 28, execution=execution)
    return network, bounded


def random_tree(neurons: int, seed: int) -> list[list[tuple[int, int]]]:
    """The paths of the leaves of a random tree, in the order of a proof: first z ≥ 0, then z ≤ 0."""
    generator = torch.Generator().manual_seed(seed)

    def grow(path: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        if len(path) > 5 or (path and torch.rand(1, generator=generator) < 0.3):
            return [path]
        free = [number for number in range(neurons) if number not in {neuron for neuron, _ in path}]
        chosen = free[int(torch.randint(len(free), (1,), generator=generator))]
        return grow([*path, (chosen, 1)]) + grow([*path, (chosen, -1)])

    return grow([])


def numbered(bounded) -> tuple[NumberedNeurons, ...]:
    first, second = bounded.graph.relus
    return (
        NumberedNeurons(first, (12,), torch.arange(12), slice(0, 12)),
        NumberedNeurons(second, (10,), torch.arange(10), slice(12, 22)),
    )


def random_table(rows: int) -> np.ndarray:
    """Slopes of all 22 ReLUs, as a proof file has them."""
    return torch.randint(65536, (rows, 22)).numpy().astype(np.uint16)


def test_slopes_are_those_of_the_row_that_a_leaf_names(whole):
    _, bounded = whole
    table = np.array([[0] * 22, [65535] * 22, [13107] * 22], np.uint16)
    none = torch.zeros(0, dtype=torch.long)
    splits = SplitColumns(none, none, torch.zeros(0), torch.zeros(0))
    leaves = EarlierLeaves(
        numbered(bounded), torch.zeros(4, dtype=torch.long), splits, torch.tensor([3, 0, 2, 1]), table
    )
    assert leaves.slopes()[[0, 2, 3], 5].tolist() == pytest.approx([0.2, 1.0, 0.0])


def leaves_of_tree(bounded, seed: int) -> tuple[list[list[tuple[int, int]]], EarlierLeaves]:
    """A random tree with random margins, slopes and multipliers."""
    paths = random_tree(22, seed)
    entries = [(column, *split) for column, path in enumerate(paths) for split in path]
    column, neuron, sign = torch.tensor(entries).view(-1, 3).t()
    splits = SplitColumns(neuron, column, sign.float(), 2 * torch.rand(len(entries)))
    margin, row = torch.randint(2, (len(paths),)), torch.randint(4, (len(paths),))
    return paths, EarlierLeaves(numbered(bounded), margin, splits, row, random_table(3))


def state_of(bounded) -> SearchState:
    """What a search knows of several boxes."""
    count = len(bounded.box.lower)
    batch = PropertyBatch(None, bounded.graph, MARGINS.repeat(count, 1, 1), None, None)
    return SearchState(batch, bounded, torch.full((count, 2), -torch.inf, dtype=torch.float64))


def moved(rows: RowErrors, by: float) -> RowErrors:
    """Rows with another constant."""
    return RowErrors(rows.constants + by, rows.errors, rows.sizes)


def on_condensed(bounded, leaves: EarlierLeaves) -> torch.Tensor:
    condensed = condense_each([bounded], bounded, MARGINS[None], 1 << 28, proofs=True)[0]
    return CondensedProof(condensed).bounds(leaves.on_condensed(condensed))[0]


def together(bounded, leaves: EarlierLeaves) -> torch.Tensor:
    return HeldLines(state_of(bounded), {0: leaves}).bounds()


@pytest.mark.parametrize("way", [on_condensed, together])
def test_bounds_of_leaves_hold_where_their_splits_do_whatever_the_slopes_are(whole, way):
    network, bounded = whole
    torch.manual_seed(0)
    points = torch.rand(20000, 5) * 1.2 - 0.6
    first = network[0](points)
    inputs = torch.cat([first, network[2](first.relu())], 1)  # of all 22 ReLUs
    margins, tight = network(points) @ MARGINS.t(), 0
    for seed in range(40):
        paths, leaves = leaves_of_tree(bounded, seed)
        found = way(bounded, leaves)
        for leaf, path in enumerate(paths):
            inside = torch.stack([inputs[:, neuron] * sign >= 0 for neuron, sign in path]).all(0)
            assert not inside.any() or found[leaf] <= margins[inside, leaves.margin[leaf]].min()
            tight += bool(inside.any())
    assert tight > 100


@pytest.mark.parametrize("seed", range(3))
def test_both_sides_of_a_split_are_the_whole_leaf(whole, seed):
    network, bounded = whole
    paths, leaves = leaves_of_tree(bounded, seed)
    torch.manual_seed(seed)
    points = torch.rand(20000, 5) * 1.2 - 0.6
    first = network[0](points)
    inputs = torch.cat([first, network[2](first.relu())], 1)
    margins, neuron = network(points) @ MARGINS.t(), torch.randint(22, (len(paths),))
    parts = leaves.split(neuron)
    found, sides = together(bounded, parts).view(2, -1), [1, -1]
    assert parts.margin.view(2, -1).eq(leaves.margin).all()
    for leaf, path in enumerate(paths):
        within = [held[:2] for held in held_of(parts)[leaf]], [held[:2] for held in held_of(parts)[leaf + len(paths)]]
        for number, side in enumerate(sides):
            assert sorted(within[number]) == sorted([*path, (int(neuron[leaf]), side)])
            inside = torch.stack([inputs[:, one] * sign >= 0 for one, sign in within[number]]).all(0)
            assert not inside.any() or found[number, leaf] <= margins[inside, leaves.margin[leaf]].min()


def test_the_relu_to_split_has_the_upper_line_that_costs_most(whole):
    _, bounded = whole
    torch.manual_seed(0)
    gains = []
    for seed in range(20):
        _, leaves = leaves_of_tree(bounded, seed)
        held, trail = HeldLines(state_of(bounded), {0: leaves}), Trail()
        before = held.bounds(trail)
        neuron, cost = held.best_split(trail, torch.arange(len(leaves)), leaves)
        unstable = torch.cat([bounded.bounds[layer.position].unstable()[0] for layer in leaves.layers])
        assert unstable[neuron[cost > 0]].all()
        for leaf, splits in enumerate(held_of(leaves)):
            assert not cost[leaf] > 0 or int(neuron[leaf]) not in [one[0] for one in splits]
        gains.append((together(bounded, leaves.split(neuron)).view(2, -1).amin(0) - before)[cost > 0])
    assert torch.cat(gains).median() > 0.01


def test_a_trial_on_the_condensed_network_leaves_what_it_does_not_prove(whole):
    """Every point of the box lies in a leaf that is proved, or in a part that is left."""
    network, bounded = whole
    condensed = condense_each([bounded], bounded, MARGINS[None], 1 << 28, proofs=True)[0]
    points, split = torch.rand(2000, 5) * 1.2 - 0.6, 0
    first = network[0](points)
    inputs, margins = torch.cat([first, network[2](first.relu())], 1), network(points) @ MARGINS.t()
    for seed in range(10):
        torch.manual_seed(seed)
        _, leaves = leaves_of_tree(bounded, seed)
        leaves = replace(leaves, margin=torch.zeros_like(leaves.margin)).not_empty(bounded)
        least, middle = on_condensed(bounded, leaves).quantile(torch.tensor([0.15, 0.3]).double()).tolist()
        by = -middle  # so that most of the leaves hold, and some are far from it
        shifted = replace(condensed, errors=(condensed.errors[0], moved(condensed.errors[1], by)))
        proved = []

        def note(batch, bounds, proved=proved):
            proved += [held for held, bound in zip(held_of(batch), bounds.tolist(), strict=True) if bound > 0]
            return bounds > 0

        trial = LeafTrial(CondensedProof(shifted), torch.full((2,), (least - middle) / 0.3), note, lambda: False)
        parts, _ = trial.run(leaves, 2)
        split += len(parts) + len(proved) > len(leaves)
        numbers = leaves.numbers_in(shifted)[1].tolist()
        named = [[(numbers[neuron], sign, beta) for neuron, sign, beta in held] for held in proved]
        covered = torch.zeros(len(points), dtype=torch.bool)
        for number, held in enumerate([*named, *held_of(parts)]):
            inside = torch.ones_like(covered)
            for neuron, sign, _ in held:
                inside &= inputs[:, neuron] * sign >= 0
            covered |= inside
            assert number >= len(named) or (margins[inside, 0] + by > 0).all()
        assert covered.all()
    assert split > 2


@pytest.mark.parametrize("way", [on_condensed, together])
def test_a_proof_that_names_no_neurons_is_a_pass_with_the_slopes_of_crown(whole, way):
    _, bounded = whole
    none = torch.zeros(0, dtype=torch.long)
    layers = tuple(NumberedNeurons(one.position, one.shape, none, slice(0, 0)) for one in numbered(bounded))
    splits = SplitColumns(none, none, torch.zeros(0), torch.zeros(0))
    row = torch.zeros(2, dtype=torch.long)
    leaves = EarlierLeaves(layers, torch.arange(2), splits, row, np.zeros((0, 0), np.uint16))
    query = BoundQuery(bounded.output, LinearFunctions(MARGINS), torch.zeros(2, dtype=torch.long))
    torch.testing.assert_close(way(bounded, leaves), bounded.relaxed().lower(query).proved, rtol=1e-4, atol=1e-4)


def test_leaves_of_several_properties_have_the_bounds_that_they_have_by_themselves(whole):
    network, _ = whole
    torch.manual_seed(1)
    centre, execution = torch.rand(3, 5) - 0.5, Execution(Arithmetic.FLOAT32, torch.float32)
    boxes = Interval(centre - 0.4, centre + 0.4)
    bounded, _ = propagate(graph_of(network, (5,)), boxes, 1 << 28, execution=execution)
    group = {index: leaves_of_tree(bounded, index)[1] for index in (2, 0)}  # in any order
    found = HeldLines(state_of(bounded), group).bounds().split([len(leaves) for leaves in group.values()])
    for (index, leaves), bounds in zip(group.items(), found, strict=True):
        alone = bounded.of_properties(torch.tensor([index]))
        batch = LeafChoices.of(leaves, alone)
        expected = WholePass(alone, MARGINS).bounds(leaves.layers, batch)
        torch.testing.assert_close(bounds, expected, rtol=1e-4, atol=1e-4)


@dataclass(frozen=True)
class LeafChoices:
    """Leaves in the numbering of their proof, for a pass over the whole network."""

    margin: torch.Tensor
    slopes: torch.Tensor
    splits: SplitColumns

    @classmethod
    def of(cls, leaves: EarlierLeaves, bounded) -> LeafChoices:
        default = torch.cat([bounded.lines(layer.position).lower_slope[0, layer.elements] for layer in leaves.layers])
        slopes = torch.where(leaves.row > 0, leaves.slopes().t(), default[:, None])
        return cls(leaves.margin, slopes, leaves.splits)

    def restricted(self, columns: torch.Tensor) -> LeafChoices:
        splits = self.splits.restricted(columns, len(self.margin))
        return LeafChoices(self.margin[columns], self.slopes[:, columns], splits)


def test_a_pass_without_relus_that_are_never_active_gives_the_same_bounds(whole, monkeypatch):
    _, bounded = whole
    torch.manual_seed(0)
    entries = [(column, *split) for column, path in enumerate(random_tree(22, 1)) for split in path]
    column, neuron, sign = torch.tensor(entries).view(-1, 3).t()
    gone = torch.tensor([*range(3), 19, 20])  # what is left out: multipliers of these ReLUs are not used
    splits = SplitColumns(neuron, column, sign.float(), torch.rand(len(entries)) * ~torch.isin(neuron, gone))
    count = int(column.max()) + 1
    leaves = EarlierLeaves(
        numbered(bounded), torch.randint(2, (count,)), splits, torch.randint(4, (count,)), random_table(3)
    ).not_empty(bounded)
    assert torch.isin(leaves.splits.neuron, gone).any()
    found = []
    for thinned in (1, 1000):
        monkeypatch.setattr(whole_pass, "THINNED", thinned)
        found.append(WholePass(bounded, MARGINS).bounds(leaves.layers, LeafChoices.of(leaves, bounded)))
    smaller, places = thinned_with_places(bounded)
    first, second = bounded.graph.relus
    assert smaller.shapes[first] == (9,)
    assert places[first].tolist() == [-1, -1, -1, *range(9)]
    assert places[second].tolist() == [0, 1, 2, 3, 4, 5, 6, -1, -1, 7]
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[0], on_condensed(bounded, leaves), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[0], together(bounded, leaves), rtol=1e-4, atol=1e-4)


def test_leaves_on_a_side_where_a_relu_never_is_are_left_out(whole):
    _, bounded = whole
    layers = numbered(bounded)
    lower_, upper = bounded.bounds[layers[1].position]
    stable = int(((lower_ >= 0) | (upper <= 0))[0].nonzero()[0])
    sign = 1 if bool(lower_[0, stable] >= 0) else -1
    neuron = torch.tensor([12 + stable, 12 + stable])
    splits = SplitColumns(neuron, torch.tensor([0, 1]), torch.tensor([1.0, -1.0]), torch.zeros(2))
    leaves = EarlierLeaves(layers, torch.tensor([0, 0]), splits, torch.tensor([0, 0]), random_table(0))
    kept = leaves.not_empty(bounded)
    assert len(kept) == 1
    assert kept.splits.sign.tolist() == [float(sign)]
    assert leaves.of(torch.tensor([1])).splits.column.tolist() == [0]
