"""Trees are read as a reader that goes from node to node reads them."""

from __future__ import annotations

import hashlib
import random
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadycheck import INPUT, LEAF, MAGIC, RELU, Boxes, Refused, Source, read_trees

NAMED, INPUTS = 9, 3


def random_forest(chance: random.Random, trees: int) -> list[tuple[int, int, float]]:
    """Nodes in preorder: kind, ReLU or input, cut (as a share of the box's side)."""
    nodes: list[tuple[int, int, float]] = []

    def grow(depth: int) -> None:
        kind = LEAF if depth > 7 or chance.random() < 0.35 else chance.choice([RELU, RELU, INPUT])
        nodes.append((kind, chance.randrange(INPUTS if kind == INPUT else NAMED), chance.random()))
        for _ in range(2 * (kind != LEAF)):
            grow(depth + 1)

    for _ in range(trees):
        grow(0)
    return nodes


class Walk:
    """A reader that goes from node to node and keeps the path to it."""

    def __init__(self, nodes: list[tuple[int, int, float]]) -> None:
        self.nodes, self.at, self.cuts = nodes, 0, []
        self.leaves: list[tuple[int, list[tuple[int, int]], np.ndarray, np.ndarray]] = []

    def tree(self, number: int, path: list[tuple[int, int]], lower: np.ndarray, upper: np.ndarray) -> None:
        kind, index, share = self.nodes[self.at]
        self.at += 1
        if kind == LEAF:
            self.leaves.append((number, path, lower, upper))
        elif kind == RELU:
            for sign in (1, -1):
                self.tree(number, [*path, (index, sign)], lower, upper)
        else:
            cut = float(lower[index] + share * (upper[index] - lower[index]))
            self.cuts.append(cut)
            below, above = upper.copy(), lower.copy()
            below[index] = above[index] = cut
            self.tree(number, path, lower, below)
            self.tree(number, path, above, upper)


def source(content: bytes) -> Source:
    packed = zlib.compress(content)
    return Source(MAGIC + hashlib.sha256(packed).digest() + packed)


def content_of(nodes: list[tuple[int, int, float]], walk: Walk, betas: list[float]) -> bytes:
    kinds = bytes(kind for kind, _, _ in nodes)
    parts = [struct.pack("<I", len(kinds)), kinds]
    parts += [
        np.array([index for kind, index, _ in nodes if kind == wanted], "<u4").tobytes() for wanted in (RELU, INPUT)
    ]
    parts += [np.array(walk.cuts, "<f8").tobytes(), np.arange(len(walk.leaves), dtype="<u4").tobytes()]
    return b"".join([*parts, np.array(betas, "<f4").tobytes(), np.ones(len(walk.leaves), "<f4").tobytes()])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 4))
def test_every_leaf_has_the_box_and_the_path_that_lead_to_it(seed: int, trees: int) -> None:
    nodes = random_forest(random.Random(seed), trees)
    walk, corners = Walk(nodes), (np.zeros(INPUTS), np.ones(INPUTS))
    for number in range(trees):
        walk.tree(number, [], *corners)
    betas = [float(number) for number in range(sum(len(path) for _, path, _, _ in walk.leaves))]
    boxes = Boxes(*corners)
    found = read_trees(source(content_of(nodes, walk, betas)), boxes, NAMED, [1] * trees)
    assert len(found.boxes) == len(walk.leaves)
    taken = 0
    for leaf, (number, path, lower, upper) in enumerate(walk.leaves):
        assert found.violation[leaf] == number
        here = found.leaf == leaf
        assert list(zip(found.relu[here], found.sign[here], strict=True)) == path
        assert found.beta[here].tolist() == betas[taken : taken + len(path)]
        taken += len(path)
        box = boxes.corners[found.boxes[leaf]]
        assert np.array_equal(box[0], lower)
        assert np.array_equal(box[1], upper)
        assert np.array_equal(found.weights[leaf], np.arange(trees) == number)


@pytest.mark.parametrize(
    "kinds",
    [
        [],  # no tree
        [LEAF, LEAF],  # two trees
        [RELU, LEAF],  # one side is missing
        [LEAF, RELU, LEAF, LEAF, LEAF],  # a tree is over before all of it came
        [RELU, LEAF, LEAF, RELU, LEAF],  # as many leaves as fit, in an order that does not
        [3],
    ],
)
def test_nodes_that_are_no_tree_are_refused(kinds: list[int]) -> None:
    content = struct.pack("<I", len(kinds)) + bytes(kinds) + bytes(400)
    with pytest.raises(Refused, match=r"do not fit|not known"):
        read_trees(source(content), Boxes(np.zeros(2), np.ones(2)), NAMED, [1])


def test_more_nodes_than_can_be_are_not_even_read() -> None:
    with pytest.raises(Refused, match="too many splits"):
        read_trees(source(struct.pack("<I", 2**32 - 1)), Boxes(np.zeros(2), np.ones(2)), NAMED, [1])


def test_a_comb_that_is_too_deep_is_refused() -> None:
    splits = 200_000  # its leaves hold 20 billion signs
    content = struct.pack("<I", 2 * splits + 1) + bytes([RELU, LEAF] * splits + [LEAF]) + bytes(4 * splits)
    with pytest.raises(Refused, match="too deep"):
        read_trees(source(content), Boxes(np.zeros(2), np.ones(2)), NAMED, [1])
