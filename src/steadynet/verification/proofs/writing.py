"""Writing proofs: a network, a property and the hints of a search in, a file out that ``steadycheck`` accepts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

import numpy as np

from steadycheck import Affine, Network, Refused, Rule, Violation, read_network, read_property, regions
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

    ``steadycheck`` computes the same bounds, and in float64 if need be, which rounds less than the float32 of the
    search. Inputs of convolutions are bounded by intervals first, which are often enough.
    """
    relus = network.relus()
    simple = all(len(violation.bound) == 1 for violation in group)
    if (
        hints is None
        or hints.margin is None
        or hints.margin < CLEARLY
        or len(hints.unstable) != len(relus)
        or not simple
    ):
        return None
    nothing = np.zeros(0, np.int64)
    rules = [Rule(_level(network, number, relu), nothing) for number, relu in enumerate(relus)]
    return RegionDraft(rules, [Leaf({}, 0, np.ones(1)) for _ in group])


def _level(network: Network, number: int, relu: int) -> int:
    """How the inputs of a ReLU layer are bounded: 0 by intervals, where nothing is better; 1 by backward passes;
    3 by backward passes only if all else fails."""
    is_image = sum(size > 1 for size in network.shapes[relu]) > 1
    sums = [
        node for node in network.nodes[:relu] if isinstance(node, Affine) and any(m.terms > 1 for _, m in node.parts)
    ]
    return 0 if number == 0 and len(sums) <= 1 else 3 if is_image else 1


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
