"""A proof as bytes: the format that ``docs/proof-format.md`` describes and ``steadycheck`` reads."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadycheck import INPUT, LEAF, MAGIC, RELU, Rule
from steadynet.verification.proofs.trees import Leaf, Node, Split, leaves_of, preorder

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RegionDraft:
    """The proof of all violations that share one box.

    Attributes:
        rules: per ReLU layer, how its inputs are bounded, and the elements that have names.
        trees: one per violation.
    """

    rules: Sequence[Rule]
    trees: Sequence[Node]


def quantised(slopes: Array, bits: int) -> Array:
    """The slopes as a proof stores them: in 16 bits. With 8, both bytes are the same, which compresses well."""
    return np.round(slopes * (2.0**bits - 1)) * (65535 // (2**bits - 1)) / 65535.0


def pack(network: bytes, property_file: bytes, exact: bool, regions: Sequence[RegionDraft]) -> bytes:
    """A proof file.

    Args:
        network: The SHA-256 hash of the ONNX file.
        property_file: The SHA-256 hash of the VNN-LIB file.
        exact: Whether the proof holds for exact arithmetic only.
        regions: The proofs of all boxes, in the order of the property.
    """
    parts = [network, property_file, _numbers(0 if exact else 1, len(regions))]
    for region in regions:
        parts += _region(region)
    content = zlib.compress(b"".join(parts), 6)
    return MAGIC + hashlib.sha256(content).digest() + content


def _numbers(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _array(values: object, kind: str) -> bytes:
    return np.asarray(values, dtype=kind).tobytes()


def _shares(slopes: Array) -> bytes:
    return _array(np.round(slopes * 65535), "<u2")


def _region(region: RegionDraft) -> list[bytes]:
    parts = []
    for rule in region.rules:
        parts += [_numbers(rule.level, len(rule.named)), _array(np.diff(rule.named, prepend=0), "<u4")]
        if rule.slopes is not None:
            parts.append(_shares(rule.slopes))
    rows: dict[bytes, int] = {}
    for leaf in (leaf for tree in region.trees for leaf in leaves_of(tree)):
        if leaf.slopes is not None:
            rows.setdefault(_shares(leaf.slopes), 1 + len(rows))
    return [*parts, _numbers(len(rows)), *rows, *_trees(region.trees, rows)]


def _trees(roots: Sequence[Node], rows: dict[bytes, int]) -> list[bytes]:
    nodes = [node for root in roots for node in preorder(root)]
    splits = [node for node in nodes if isinstance(node, Split)]
    leaves = [node for node in nodes if isinstance(node, Leaf)]
    kinds = [LEAF if isinstance(node, Leaf) else INPUT if node.relu is None else RELU for node in nodes]
    cuts = [split for split in splits if split.relu is None]
    betas = [beta for leaf in leaves for _, beta in leaf.held.values()]
    slopes = [0 if leaf.slopes is None else rows[_shares(leaf.slopes)] for leaf in leaves]
    return [
        _numbers(len(nodes)),
        _array(kinds, "u1"),
        _array([split.relu for split in splits if split.relu is not None], "<u4"),
        _array([split.axis for split in cuts], "<u4"),
        _array([split.cut for split in cuts], "<f8"),
        _array(slopes, "<u4"),
        _array(betas, "<f4"),
        _array(np.concatenate([leaf.weights for leaf in leaves]), "<f4"),
    ]
