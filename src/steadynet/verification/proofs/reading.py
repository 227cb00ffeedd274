"""Reading a proof file without checking it: its trees, slopes and multipliers, for reuse and for export.

``steadycheck`` reads the bytes, so a file that it could not read is refused here, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from steadycheck import Boxes, Leaves, Network, Refused, Source, Violation, read_trees, require

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class StoredLeaf:
    """One leaf: the named ReLUs that it holds, the side of each, their multipliers, and its row of the slopes."""

    relus: tuple[int, ...]
    signs: tuple[int, ...]
    betas: tuple[float, ...]
    slopes: int


@dataclass(frozen=True)
class StoredRegion:
    """What a proof says of the violations that share one box.

    Attributes:
        kept: per ReLU layer, the elements that have names; named ReLUs are numbered over all layers.
        refined: per ReLU layer, the slopes behind its refined bounds (2, named, named before), or None.
        slopes: (rows, named ReLUs), lower slopes of leaves; a leaf's number of its row is larger by one, and 0 stands
            for default ones. All slopes are in steps of 1/65535, as stored: large proofs have millions of them.
        leaves: the leaves of all trees; those of one violation together are everything.
        halves: whether the box is halved somewhere. Then leaves speak of parts of it.
        violations: how many there are.
    """

    kept: list[Index]
    refined: list[NDArray[np.uint16] | None]
    slopes: NDArray[np.uint16]
    leaves: Leaves
    halves: bool
    violations: int

    @cached_property
    def trees(self) -> list[list[StoredLeaf]]:
        """Per violation, its leaves one by one."""
        trees = (self.leaves.of(self.leaves.violation == number) for number in range(self.violations))
        return [_leaves(tree) for tree in trees]


def sizes_of(network: Network) -> list[int]:
    """How many elements each ReLU layer of a network has."""
    return [prod(network.shapes[relu]) for relu in network.relus()]


def read_proof(
    content: bytes, sizes: Sequence[int], groups: Sequence[Sequence[Violation]], property_file: bytes | None = None
) -> list[StoredRegion]:
    """Read the content of a proof file.

    Args:
        content: The content.
        sizes: How many elements each ReLU layer of its network has.
        groups: The violations of its property, by their boxes.
        property_file: The content of its VNN-LIB file, unless it is known to be the one that the proof speaks of.

    Raises:
        Refused: The file is damaged, or speaks of something else.
    """
    source = Source(content)
    hashes = source.array("u1", 64).astype(np.uint8).tobytes()
    if property_file is not None:
        require(hashes[32:] == hashlib.sha256(property_file).digest(), "the proof speaks of another property")
    source.number()  # the arithmetic that it was made for
    require(source.number() == len(groups), "the proof has another number of boxes than the property")
    found = [_region(source, sizes, group) for group in groups]
    require(source.at == len(source.content), "the proof is longer than it should be")
    return found


def _region(source: Source, sizes: Sequence[int], violations: Sequence[Violation]) -> StoredRegion:
    """As ``read_region`` of ``steadycheck``, but slopes stay as they are stored."""
    kept, refined, total = list[Index](), list[NDArray[np.uint16] | None](), 0
    for size in sizes:
        level = source.number()
        named = np.cumsum(source.array("u4", source.number()))  # each is stored as its distance from the last one
        require(level <= 3 and (np.diff(named) > 0).all() and (named < size).all(), "a rule that is not known")
        kept.append(named)
        refined.append(_slopes(source, 2 * len(named), total).reshape(2, len(named), total) if level == 2 else None)
        total += len(named)
    slopes = _slopes(source, source.number(), total)
    boxes = Boxes(violations[0].lower, violations[0].upper)
    leaves = read_trees(source, boxes, total, [len(violation.bound) for violation in violations])
    require((leaves.slopes <= len(slopes)).all(), "slopes that are not there")
    return StoredRegion(kept, refined, slopes, leaves, len(boxes.corners) > 1, len(violations))


def _slopes(source: Source, count: int, width: int) -> NDArray[np.uint16]:
    """Rows of numbers in [0, 1], in steps of 1/65535: a view of the content, not a copy."""
    start, source.at = source.at, source.at + 2 * count * width
    require(source.at <= len(source.content), "the proof ends too early")
    return np.frombuffer(source.content, "<u2", count * width, start).reshape(count, width)


def _leaves(tree: Leaves) -> list[StoredLeaf]:
    ends = np.searchsorted(tree.leaf, np.arange(1 + len(tree.boxes)))
    relus, signs, betas = tree.relu.tolist(), tree.sign.astype(int).tolist(), tree.beta.tolist()
    spans = zip(ends[:-1].tolist(), ends[1:].tolist(), tree.slopes.tolist(), strict=True)
    return [StoredLeaf(tuple(relus[a:b]), tuple(signs[a:b]), tuple(betas[a:b]), row) for a, b, row in spans]


__all__ = ["Refused", "StoredLeaf", "StoredRegion", "read_proof", "sizes_of"]
