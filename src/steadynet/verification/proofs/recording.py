"""Verifiers that leave hints for proofs."""

from __future__ import annotations

from dataclasses import replace

from steadynet.errors import UserError
from steadynet.verification.verifiers import Verifier
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound


def recording(verifier: Verifier) -> Verifier:
    """The same verifier, whose proved results carry hints for a proof.

    Raises:
        UserError: Only steadynet's own search leaves hints.
    """
    if not isinstance(verifier, BranchAndBound):
        raise UserError(f"proofs come from branch_and_bound only: {verifier.name} leaves nothing to make them from")
    return replace(verifier, hints=True)
