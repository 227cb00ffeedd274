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

from steadycheck import Leaves, Network, Refused, Source, Violation, read_region, require

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
        slopes: (rows, named ReLUs), lower slopes of leaves; row 0 stands for default ones.
        found: per violation, the leaves of its tree, which together are everything.
        halves: whether the box is halved somewhere. Then leaves speak of parts of it.
    """

    kept: list[Index]
    refined: list[Array | None]
    slopes: NDArray[np.float32]
    found: list[Leaves]
    halves: bool

    @cached_property
    def trees(self) -> list[list[StoredLeaf]]:
        """Per violation, its leaves one by one."""
        return [_leaves(tree) for tree in self.found]


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
    region = read_region(source, sizes, violations)
    trees = [region.leaves.of(region.leaves.violation == number) for number in range(len(violations))]
    kept, refined = [rule.named for rule in region.rules], [rule.slopes for rule in region.rules]
    return StoredRegion(kept, refined, region.table.astype(np.float32), trees, len(region.boxes.corners) > 1)


def _leaves(tree: Leaves) -> list[StoredLeaf]:
    ends = np.searchsorted(tree.leaf, np.arange(1 + len(tree.boxes)))
    relus, signs, betas = tree.relu.tolist(), tree.sign.astype(int).tolist(), tree.beta.tolist()
    spans = zip(ends[:-1].tolist(), ends[1:].tolist(), tree.slopes.tolist(), strict=True)
    return [StoredLeaf(tuple(relus[a:b]), tuple(signs[a:b]), tuple(betas[a:b]), row) for a, b, row in spans]


__all__ = ["Refused", "StoredLeaf", "StoredRegion", "read_proof", "sizes_of"]
