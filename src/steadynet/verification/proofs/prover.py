"""From hints to a proof: every leaf is bounded with ``steadycheck``'s own arithmetic, and repaired where that fails."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from steadycheck import Bounds, Boxes, Leaves, Network, Rule, Violation, bound_leaves
from steadynet.verification.proofs.ascent import Batch, ascend, one_pass
from steadynet.verification.proofs.packing import RegionDraft, quantised
from steadynet.verification.proofs.reading_hints import MarginHints, refined_slopes
from steadynet.verification.proofs.trees import Leaf, Node, Split, input_tree, leaves_of, preorder, relu_tree
from steadynet.verification.search.hints import ProofHints

Array = NDArray[np.float64]

LEAVES_AT_ONCE = 256
MOST_LEAVES = 20_000  # that repairs may add to a tree
FEW_INPUTS = 16  # up to so many, a leaf that fails is cut across an input; else a ReLU is split
DEEPEST = 512
NARROW = 2.0**-10  # the width of a box relative to its numbers, below which rounding hardly depends on it
CLEAR = 1e-9  # a leaf counts as proved above this, as another machine may round otherwise


class NoProofError(Exception):
    """No proof was found; the message says why."""


class RegionProver:
    """Proves the violations that share one box.

    Args:
        network: The network as ``steadycheck`` reads it.
        violations: The violations.
        hints: What the search left, or None.
        exact: Whether the proof is for exact arithmetic only.
        deadline: When to give up, on the clock ``time.process_time``.
    """

    def __init__(
        self,
        network: Network,
        violations: Sequence[Violation],
        hints: ProofHints | None,
        exact: bool,
        deadline: float,
    ) -> None:
        self.network, self.violations, self.exact, self.deadline = network, violations, exact, deadline
        lower, upper = violations[0].lower, violations[0].upper
        self.boxes = Boxes(lower, upper)
        self.hints = hints
        self.sizes = [prod(network.shapes[relu]) for relu in network.relus()]
        self.rules = [Rule(1, np.zeros(0, np.int64))] * len(self.sizes)
        self.whole = self._bounded(0)
        self.kept = [lines.open for lines in self.whole.lines.values()]
        self.whole.rules = self.rules = [Rule(1, elements) for elements in self.kept]
        ends = np.cumsum([len(elements) for elements in self.kept])
        for lines, elements, end in zip(self.whole.lines.values(), self.kept, ends, strict=True):
            lines.named, lines.span = elements, slice(int(end) - len(elements), int(end))

    def _bounded(self, box: int, outer: Bounds | None = None) -> Bounds:
        return Bounds(self.network, self.boxes.corners[box], self.rules, self.exact, outer)

    def prove(self) -> RegionDraft:
        """Prove every violation.

        Raises:
            NoProofError: One of them was not proved.
        """
        trees = self._at_once()
        left = [number for number, tree in enumerate(trees) if tree is None]
        if left and self._refine(left):
            trees = [tree or other for tree, other in zip(trees, self._at_once(), strict=True)]
        for number, tree in enumerate(trees):
            if tree is None:
                trees[number] = self._searched(number)
        return RegionDraft(self.rules, [tree for tree in trees if tree is not None])

    def _at_once(self) -> list[Node | None]:
        """For each violation a single leaf with default slopes, if one constraint by itself is proved."""
        counts = [len(violation.bound) for violation in self.violations]
        leaves = [Leaf({}, 0, row) for row in np.eye(sum(counts))]
        bounds = self._bounds(self.whole, self.violations, leaves)
        result: list[Node | None] = []
        for count, end in zip(counts, np.cumsum(counts), strict=True):
            best = int(bounds[end - count : end].argmax())
            proved = bounds[end - count + best] > CLEAR
            result.append(Leaf({}, 0, np.eye(count)[best]) if proved else None)
        return result

    def _refine(self, left: Sequence[int]) -> bool:
        """Take over the refined inner bounds of the search, if a margin that is left needed them."""
        if self.hints is None or not any(self.hints.rounds.get(number, 0) > 1 for number in left):
            return False
        found = refined_slopes(self.hints, self.kept, self.sizes)
        if all(slopes is None for slopes in found):
            return False
        for number, slopes in enumerate(found):
            if slopes is not None:
                self.rules[number] = Rule(2, self.kept[number], quantised(slopes, 8))
        self.whole = self._bounded(0)
        return True

    def _searched(self, number: int) -> Node:
        """The tree that the hints describe, with every leaf proved."""
        count = len(self.violations[number].bound)
        weights = np.full(count, 1 / max(count, 1))
        margin = MarginHints(self.hints, number, self.kept, self.sizes)
        if margin.cuts and not margin.leaves:
            tree = input_tree(margin.cuts, weights)
            self._number_boxes(tree, 0)
        else:
            tree = relu_tree(margin.leaves, weights)
        return self._proved(number, tree)

    def _number_boxes(self, root: Node, box: int) -> None:
        """Give every leaf of a tree of cuts the number of its box."""
        waiting = [(root, box)]
        while waiting:
            node, owner = waiting.pop()
            if isinstance(node, Leaf):
                node.box = owner
            else:
                lower, upper = self.boxes.corners[owner]
                node.cut = float(min(max(node.cut, lower[node.axis]), upper[node.axis]))
                waiting += zip(node.sides, self.boxes.halves(owner, node.axis, node.cut), strict=True)

    def _proved(self, number: int, tree: Node) -> Node:
        """Bound all leaves; raise, by an ascent, what fails; and split what still fails."""
        holder = Split(None, 0, 0.0, [tree])
        parents = {id(side): (node, at) for node in _splits(holder) for at, side in enumerate(node.sides)}
        waiting, added = leaves_of(tree), 0
        while waiting:
            waiting.sort(key=lambda leaf: leaf.box)
            some, bounds = self._next(waiting)
            waiting = waiting[len(some) :]
            failed = self._failed(bounds, number, some)
            if failed and (time.process_time() > self.deadline or added > MOST_LEAVES):
                raise NoProofError(f"{len(failed)} leaves were not proved in time")
            for leaf, split in zip(failed, self._splits_of(bounds, number, failed), strict=True):
                parent, at = parents.pop(id(leaf))
                parent.sides[at] = split
                for place, side in enumerate(split.sides):
                    parents[id(side)] = (split, place)
                    assert isinstance(side, Leaf)
                    waiting.append(side)
                added += 1
        return holder.sides[0]

    def _next(self, waiting: Sequence[Leaf]) -> tuple[list[Leaf], Bounds]:
        """The first leaves, of one box, and the network over this box."""
        box = waiting[0].box
        some = [leaf for leaf in waiting[: LEAVES_AT_ONCE * 4] if leaf.box == box]
        return some, self._bounded(box, self.whole) if box else self.whole

    def _failed(self, bounds: Bounds, number: int, leaves: list[Leaf]) -> list[Leaf]:
        """Prove leaves as they are, or after an ascent; those that are not proved."""
        for leaf in leaves:
            if leaf.slopes is not None:
                leaf.slopes = quantised(leaf.slopes, leaf.bits)
        left = self._not_proved(bounds, number, leaves)
        for row in range(len(self.violations[number].bound) if left and len(leaves[0].weights) > 1 else 0):
            one = np.eye(len(leaves[0].weights))[row]
            tried = [Leaf(leaf.held, leaf.box, one, leaf.slopes, leaf.bits) for leaf in left]
            missing = {id(leaf) for leaf in self._not_proved(bounds, number, tried)}
            for leaf, other in zip(left, tried, strict=True):
                if id(other) not in missing:
                    leaf.weights = one
            left = [leaf for leaf, other in zip(left, tried, strict=True) if id(other) in missing]
        if bounds.lines and not bounds.outer:
            left = self._ascended(bounds, number, left)
        return left

    def _not_proved(self, bounds: Bounds, number: int, leaves: list[Leaf]) -> list[Leaf]:
        if not leaves:
            return []
        found = self._bounds(bounds, [self.violations[number]], leaves)
        return [leaf for leaf, bound in zip(leaves, found, strict=True) if not bound > CLEAR]

    def _ascended(self, bounds: Bounds, number: int, leaves: list[Leaf]) -> list[Leaf]:
        """Raise the bounds of some leaves; those that are still not proved."""
        result = []
        for start in range(0, len(leaves), LEAVES_AT_ONCE):
            some = leaves[start : start + LEAVES_AT_ONCE]
            batch = Batch.of(bounds, some)
            ascend(bounds, self.violations[number], batch)
            for bits in (8, 16):
                for row, leaf in enumerate(some):
                    if leaf in result and bits == 8:
                        continue
                    leaf.bits, leaf.slopes = bits, quantised(batch.slopes[row], bits)
                    leaf.weights = batch.weights[row].astype(np.float32).astype(np.float64)
                    held = {relu: (sign, float(batch.betas[row, relu])) for relu, (sign, _) in leaf.held.items()}
                    leaf.held = held
                missing = {id(leaf) for leaf in self._not_proved(bounds, number, some)}
                proved = [row for row, leaf in enumerate(some) if id(leaf) not in missing]
                batch = _without(batch, proved)
                some = [leaf for leaf in some if id(leaf) in missing]
                if not some:
                    break
            result += some
        return result

    def _bounds(self, bounds: Bounds, violations: Sequence[Violation], leaves: Sequence[Leaf]) -> Array:
        """The bounds of leaves of some violations, as ``steadycheck`` will compute them."""
        found = []
        for start in range(0, len(leaves), LEAVES_AT_ONCE):
            some = leaves[start : start + LEAVES_AT_ONCE]
            entries = [(row, relu, *held) for row, leaf in enumerate(some) for relu, held in leaf.held.items()]
            leaf_of, relu, sign, beta = np.array(entries).reshape(-1, 4).T
            own = [leaf.slopes for leaf in some if leaf.slopes is not None]
            table = np.array([np.full(sum(map(len, self.kept)), -1.0), *own])
            slopes = np.cumsum([leaf.slopes is not None for leaf in some]) * [leaf.slopes is not None for leaf in some]
            part = Leaves(
                np.zeros(len(some), np.int64),
                np.array([leaf.box for leaf in some]),
                leaf_of.astype(np.int64),
                relu.astype(np.int64),
                sign,
                beta.astype(np.float32).astype(np.float64),
                slopes.astype(np.int64),
                np.array([leaf.weights for leaf in some]).astype(np.float32).astype(np.float64),
            )
            found.append(bound_leaves(bounds, violations, part, table))
        return np.concatenate(found)

    def _splits_of(self, bounds: Bounds, number: int, leaves: list[Leaf]) -> list[Split]:
        """Both sides of a ReLU or of a cut for every leaf that is not proved."""
        if not leaves:
            return []
        found = one_pass(bounds, self.violations[number], Batch.of(bounds, leaves))
        return [self._split(leaf, found.loss[row], found.on_input[row]) for row, leaf in enumerate(leaves)]

    def _split(self, leaf: Leaf, loss: Array, on_input: Array) -> Split:
        lower, upper = self.boxes.corners[leaf.box]
        if len(leaf.held) > DEEPEST:
            raise NoProofError("the tree has become too deep")
        if len(lower) <= FEW_INPUTS and not leaf.held:
            slope = np.abs(on_input)
            axis = int(((slope + 0.2 * slope.mean()) * (upper - lower)).argmax())
            cut = float((lower[axis] + upper[axis]) / 2)
            # without a loss, one constraint has its bound at a point: a cut can only lessen rounding, in a wide box
            tight = not loss.any() and len(leaf.weights) == 1
            narrow = upper[axis] - lower[axis] <= NARROW * max(abs(lower[axis]), abs(upper[axis]))
            if lower[axis] < cut < upper[axis] and not (tight and narrow):
                parts = self.boxes.halves(leaf.box, axis, cut)
                return Split(None, axis, cut, [Leaf({}, part, leaf.weights, leaf.slopes, leaf.bits) for part in parts])
        if not loss.any():
            raise NoProofError("a leaf without any unstable ReLU was not proved")
        relu = int(loss.argmax())
        sides: list[Split | Leaf] = [
            Leaf({**leaf.held, relu: (sign, 0.0)}, leaf.box, leaf.weights, leaf.slopes, leaf.bits) for sign in (1, -1)
        ]
        return Split(relu, 0, 0.0, sides)


def _splits(root: Node) -> list[Split]:
    return [node for node in preorder(root) if isinstance(node, Split)]


def _without(batch: Batch, rows: list[int]) -> Batch:
    slopes, betas, signs, weights = (
        np.delete(part, rows, 0) for part in (batch.slopes, batch.betas, batch.signs, batch.weights)
    )
    return Batch(slopes, betas, signs, weights)
