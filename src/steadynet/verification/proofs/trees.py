"""The tree of a proof while it is being written: splits of ReLUs, cut boxes, and leaves with their multipliers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Held = dict[int, tuple[int, float]]  # kept ReLU -> (sign, multiplier)


@dataclass(eq=False)
class Leaf:
    """A part of the box that is proved, or is to be.

    Attributes:
        held: the ReLUs that are held on one side on the way to it, in order.
        box: the number of its box.
        slopes: (kept ReLUs,) lower slopes; None for the default ones.
        weights: (constraints,), λ.
        bits: how many bits each slope is stored in.
    """

    held: Held
    box: int
    weights: Array
    slopes: Array | None = None
    bits: int = 8


@dataclass(eq=False)
class Split:
    """A ReLU that is split (first z ≥ 0, then z ≤ 0), or an input that is cut (first below, then above)."""

    relu: int | None
    axis: int
    cut: float
    sides: list[Split | Leaf] = field(default_factory=list)


Node = Split | Leaf


def preorder(root: Node) -> Iterator[Node]:
    """Every node, each split before its sides."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Split):
            waiting += node.sides[::-1]


def leaves_of(root: Node) -> list[Leaf]:
    """The leaves, from the first side to the last."""
    return [node for node in preorder(root) if isinstance(node, Leaf)]


@dataclass(frozen=True)
class Hint:
    """What a search says of one leaf: the ReLUs that it holds, and its slopes."""

    held: Held
    slopes: Array | None


def relu_tree(hints: Sequence[Hint], weights: Array) -> Node:
    """The tree whose leaves are those of the hints; a part that no hint speaks of becomes a leaf without hints."""
    root = Split(None, 0, 0.0)  # holds the tree as its only side
    waiting: list[tuple[Split, Held, list[Hint]]] = [(root, {}, list(hints))]
    while waiting:
        parent, held, some = waiting.pop()
        done = next((hint for hint in some if hint.held.keys() <= held.keys()), None)
        if done is not None or not some:
            known = {} if done is None else done.held
            betas = {relu: (sign, known[relu][1] if relu in known else 0.0) for relu, (sign, _) in held.items()}
            parent.sides.append(Leaf(betas, 0, weights, None if done is None else done.slopes))
            continue
        relu = _common(some, held)
        node = Split(relu, 0, 0.0)
        parent.sides.append(node)
        for sign in (-1, 1):  # the last one in is taken first
            fitting = [hint for hint in some if hint.held.get(relu, (sign, 0.0))[0] == sign]
            waiting.append((node, {**held, relu: (sign, 0.0)}, fitting))
    return root.sides[0]


def _common(hints: Sequence[Hint], held: Held) -> int:
    """A ReLU that all hints split, or else the one that most of them do."""
    for relu in hints[0].held:
        if relu not in held and all(relu in hint.held for hint in hints):
            return relu
    return Counter(relu for hint in hints for relu in hint.held if relu not in held).most_common(1)[0][0]


def input_tree(cuts: Sequence[tuple[Array, int, float]], weights: Array) -> Node:
    """The tree of cut boxes: (centre of the box, input, place) in the order in which the boxes were cut."""
    root = Split(None, 0, 0.0, [Leaf({}, 0, weights)])
    for centre, axis, middle in cuts:
        parent, side = root, 0
        node = parent.sides[side]
        while isinstance(node, Split):
            parent, side = node, int(centre[node.axis] > node.cut)
            node = parent.sides[side]
        parent.sides[side] = Split(None, axis, middle, [Leaf({}, 0, weights), Leaf({}, 0, weights)])
    return root.sides[0]
