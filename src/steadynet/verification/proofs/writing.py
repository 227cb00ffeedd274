"""Writing proofs: a network, a property and the hints of a search in, a file out that ``steadycheck`` accepts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from steadycheck import Network, Refused, Violation, read_network, read_property, regions
from steadynet.errors import UserError, one_line
from steadynet.verification.proofs.packing import pack
from steadynet.verification.proofs.prover import NoProofError, RegionProver
from steadynet.verification.search.hints import ProofHints

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


def prove(network: Network, property_file: bytes, hints_of: HintsOf, *, exact: bool, seconds: float) -> bytes:
    """The proof of a property, as the content of a file.

    Args:
        network: The network, from :func:`open_network`.
        property_file: The content of the VNN-LIB file.
        hints_of: What the search left for each box.
        exact: Whether to prove it for exact arithmetic only.
        seconds: CPU seconds that it may take.

    Raises:
        NoProofError: No proof was found.
    """
    deadline = time.process_time() + seconds
    try:
        groups = regions(read_property(property_file, network))
        drafts = [
            RegionProver(network, group, hints_of(number, group[0]), exact, deadline).prove()
            for number, group in enumerate(groups)
        ]
    except Refused as error:
        raise NoProofError(f"steadycheck refuses: {one_line(error)}") from error
    return pack(network.sha256, hashlib.sha256(property_file).digest(), exact, drafts)
