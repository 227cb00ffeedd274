"""The leaves of an earlier proof: which of them one subproblem holds, and what is left out because it is empty."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from steadynet.bounds.condensed import condense
from steadynet.bounds.condensed_bounds import Columns, SplitColumns, lower
from steadynet.bounds.crown import propagate
from steadynet.bounds.refinement_by_slopes import NumberedNeurons
from steadynet.bounds.whole_pass import WholePass
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of
from steadynet.verification.search.earlier_leaves import EarlierLeaves
from steadynet.verification.search.earlier_tree import EarlierTree, Node

MARGINS = torch.tensor([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])


@pytest.fixture(scope="module")
def whole():
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 3))
    network.requires_grad_(False)
    network[2].bias[4] += 20.0  # always active
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


def leaves_on(condensed, paths: list[list[tuple[int, int]]], margin: torch.Tensor) -> Columns:
    entries = [(column, *split) for column, path in enumerate(paths) for split in path]
    column, neuron, sign = torch.tensor(entries).view(-1, 3).t()
    torch.manual_seed(len(paths))
    splits = SplitColumns(neuron, column, sign.float(), torch.rand(len(entries)))
    return Columns.of(condensed, margin, torch.rand(condensed.neurons, len(paths)), splits)


@pytest.mark.parametrize("seed", range(5))
def test_a_subproblem_holds_exactly_its_leaves(whole, seed):
    condensed = condense(whole[1], MARGINS, 1 << 28)
    paths = random_tree(condensed.neurons, seed), random_tree(condensed.neurons, seed + 50)
    both = [*paths[0], *paths[1]]
    margin = torch.tensor([0] * len(paths[0]) + [1] * len(paths[1]))
    tree = EarlierTree(condensed, leaves_on(condensed, both, margin))
    assert [(root.first, root.last) for root in tree.roots()] == [(0, len(paths[0])), (len(paths[0]), len(both))]

    waiting, seen = tree.roots(), 0
    while waiting:
        node = waiting.pop()
        splits = both[node.first][: node.depth]
        for leaf in range(node.first, node.last):  # each lies in the subproblem: it has all its splits
            assert both[leaf][: node.depth] == splits
            assert margin[leaf] == margin[node.first]
        if node.is_leaf:
            assert node.depth == len(both[node.first])
            seen += 1
            continue
        sides = tree.sides(node)
        assert [sides[0].first, *(side.last for side in sides)] == [
            node.first,
            *(s.first for s in sides[1:]),
            node.last,
        ]
        waiting += sides
    assert seen == len(both)


def test_a_subproblem_has_the_means_of_its_leaves(whole):
    condensed = condense(whole[1], MARGINS, 1 << 28)
    columns = leaves_on(condensed, [[(0, 1), (1, 1)], [(0, 1), (1, -1)], [(0, -1)]], torch.tensor([0, 0, 0]))
    tree = EarlierTree(condensed, columns)
    (root,) = tree.roots()
    assert tree.sides(root) == [Node(0, 2, 1), Node(2, 3, 1)]
    pair = tree.columns([Node(0, 2, 1)])
    assert pair.splits.neuron.tolist() == [0]
    assert pair.splits.beta[0] == pytest.approx(float(columns.splits.beta[[0, 2]].mean()))
    torch.testing.assert_close(pair.slopes[2:, 0], columns.slopes[2:, :2].mean(1))
    again = tree.columns(tree.leaves())
    torch.testing.assert_close(lower(condensed, again).lower, lower(condensed, columns).lower)


def numbered(bounded) -> tuple[NumberedNeurons, ...]:
    first, second = bounded.graph.relus
    return (
        NumberedNeurons(first, (12,), torch.arange(12), slice(0, 12)),
        NumberedNeurons(second, (10,), torch.arange(10), slice(12, 22)),
    )


def test_bounds_of_leaves_hold_where_their_splits_do_whatever_the_slopes_are(whole):
    network, bounded = whole
    torch.manual_seed(0)
    points = torch.rand(20000, 5) * 1.2 - 0.6
    first = network[0](points)
    inputs = torch.cat([first, network[2](first.relu())], 1)  # of all 22 ReLUs
    margins = network(points) @ MARGINS.t()
    proving, tight = WholePass(bounded, MARGINS), 0
    for seed in range(40):
        paths = random_tree(22, seed)
        entries = [(column, *split) for column, path in enumerate(paths) for split in path]
        column, neuron, sign = torch.tensor(entries).view(-1, 3).t()
        splits = SplitColumns(neuron, column, sign.float(), 2 * torch.rand(len(entries)))
        margin, row = torch.randint(2, (len(paths),)), torch.randint(4, (len(paths),))
        table = 1.6 * torch.rand(4, 22) - 0.3  # some slopes are outside of [0, 1]
        leaves = EarlierLeaves(numbered(bounded), margin, splits, row, table)
        found = proving.bounds(leaves.layers, leaves.on_whole(proving.relaxed))
        inside_range = replace(leaves, table=table.clamp(0.0, 1.0))
        torch.testing.assert_close(found, proving.bounds(leaves.layers, inside_range.on_whole(proving.relaxed)))
        for leaf, path in enumerate(paths):
            inside = torch.stack([inputs[:, neuron] * sign >= 0 for neuron, sign in path]).all(0)
            assert not inside.any() or found[leaf] <= margins[inside, margin[leaf]].min()
            tight += bool(inside.any())
    assert tight > 100


def test_leaves_on_a_side_where_a_relu_never_is_are_left_out(whole):
    _, bounded = whole
    layers = numbered(bounded)
    lower_, upper = bounded.bounds[layers[1].position]
    stable = int(((lower_ >= 0) | (upper <= 0))[0].nonzero()[0])
    sign = 1 if bool(lower_[0, stable] >= 0) else -1
    neuron = torch.tensor([12 + stable, 12 + stable])
    splits = SplitColumns(neuron, torch.tensor([0, 1]), torch.tensor([1.0, -1.0]), torch.zeros(2))
    leaves = EarlierLeaves(layers, torch.tensor([0, 0]), splits, torch.tensor([0, 0]), torch.zeros(1, 22))
    kept = leaves.not_empty(bounded)
    assert len(kept) == 1
    assert kept.splits.sign.tolist() == [float(sign)]
    assert leaves.of(torch.tensor([1])).splits.column.tolist() == [0]
