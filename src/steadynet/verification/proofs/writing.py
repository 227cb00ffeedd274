"""Writing proofs: a network, a property and the hints of a search in, a file out that ``steadycheck`` accepts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from steadycheck import Network, Refused, Violation, read_network, read_property, regions
from steadynet.errors import UserError, one_line
from steadynet.verification.proofs.packing import RegionDraft, pack
from steadynet.verification.proofs.prover import NoProofError, RegionProver
from steadynet.verification.proofs.trees import Leaf
from steadynet.verification.search.hints import ProofHints

CLEARLY = 0.02  # a smaller margin of CROWN's is bounded again
HintsOf = Callable[[int, Violation], ProofHints | None]  # (number of a box, one of its violations) -> hints


def open_network(content: bytes) -> Network:
    """An ONNX network as ``steadycheck`` reads it.

    Raises:
        UserError: It refuses the network.
    """
    try:
        return read_network(content)
    except Refused as error:
        raise UserError(f"no proofs for this network: steadycheck says: {one_line(error)}") from error


def at_once(network: Network, group: Sequence[Violation], hints: ProofHints | None) -> RegionDraft | None:
    """The proof of what CROWN has proved with room to spare: a single leaf, which need not be bounded again here.

    ``steadycheck`` computes the same bounds in float64, which rounds less than the float32 of the search.
    """
    sizes = [prod(network.shapes[relu]) for relu in network.relus()]
    if hints is None or hints.margin is None or hints.margin < CLEARLY or len(hints.unstable) != len(sizes):
        return None
    kept = [elements.cpu().numpy() for elements in hints.unstable]
    simple = all(len(violation.bound) == 1 for violation in group)
    if not simple or any(len(elements) and elements[-1] >= size for elements, size in zip(kept, sizes, strict=True)):
        return None
    return RegionDraft(kept, [None] * len(kept), [Leaf({}, 0, np.ones(1)) for _ in group])


def prove(
    network: Network,
    property_file: bytes,
    hints_of: HintsOf,
    *,
    exact: bool,
    seconds: float,
    known: Sequence[Violation] | None = None,
) -> bytes:
    """The proof of a property, as the content of a file.

    Args:
        network: The network, from :func:`open_network`.
        property_file: The content of the VNN-LIB file.
        hints_of: What the search left for each box.
        exact: Whether to prove it for exact arithmetic only.
        seconds: CPU seconds that it may take.
        known: The violations that the file lists, if they are known without reading it.

    Raises:
        NoProofError: No proof was found.
    """
    deadline = time.process_time() + seconds
    try:
        groups = regions(read_property(property_file, network) if known is None else list(known))
        drafts = []
        for number, group in enumerate(groups):
            hints = hints_of(number, group[0])
            found = at_once(network, group, hints)
            drafts.append(found or RegionProver(network, group, hints, exact, deadline).prove())
    except Refused as error:
        raise NoProofError(f"steadycheck refuses: {one_line(error)}") from error
    return pack(network.sha256, hashlib.sha256(property_file).digest(), exact, drafts)
