"""Where tasks run, one file an engine."""

from __future__ import annotations

import sys

from steadynet.experiments.engines.base import Engine
from steadynet.plugins import discover

__all__ = ["Engine", "available"]


def available() -> dict[str, type[Engine]]:
    """Every engine by name."""
    return discover(sys.modules[__name__], Engine)  # type: ignore[type-abstract]
