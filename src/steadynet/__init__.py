"""steadynet: train neural networks that can be proved robust.

The public names are imported when they are used: ``import steadynet`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steadynet.objectives.nbc import NBC
    from steadynet.problems import Result, Verdict
    from steadynet.region import InputRegion
    from steadynet.settings import resolve
    from steadynet.trained import load_trained
    from steadynet.training import train
    from steadynet.verification import verify

__version__ = "0.1.0"

_HOME = {
    "NBC": "steadynet.objectives.nbc",
    "InputRegion": "steadynet.region",
    "Result": "steadynet.problems",
    "Verdict": "steadynet.problems",
    "load_trained": "steadynet.trained",
    "resolve": "steadynet.settings",
    "train": "steadynet.training",
    "verify": "steadynet.verification",
}
__all__ = ["NBC", "InputRegion", "Result", "Verdict", "load_trained", "resolve", "train", "verify"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'steadynet' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
