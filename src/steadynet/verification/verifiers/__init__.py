"""Verifiers, one file each."""

from __future__ import annotations

import sys

from steadynet.plugins import discover
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.verifiers.base import Verifier

__all__ = ["Properties", "Result", "Verdict", "Verifier", "available"]


def available() -> dict[str, type[Verifier]]:
    """Return the classes of all verifiers by name: ours, and those of other installed packages."""
    return discover(sys.modules[__name__], Verifier, group="steadynet.verifiers")  # type: ignore[type-abstract]
