"""Engines: where the tasks of an experiment run. Each engine is one file."""

from __future__ import annotations

import sys

from steadynet.experiments.engines.base import Engine
from steadynet.plugins import discover

__all__ = ["Engine", "available"]


def available() -> dict[str, type[Engine]]:
    """Return the classes of all engines by name."""
    return discover(sys.modules[__name__], Engine)  # type: ignore[type-abstract]
