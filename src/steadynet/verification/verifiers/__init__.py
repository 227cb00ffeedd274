"""Verifiers, one file each."""

from __future__ import annotations

import sys

from steadynet.plugins import discover
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.verifiers.base import Verifier

__all__ = ["Properties", "Result", "Verdict", "Verifier", "available"]


def available() -> dict[str, type[Verifier]]:
    """Every verifier by name."""
    return discover(sys.modules[__name__], Verifier)  # type: ignore[type-abstract]
