"""steadynet: train neural networks that can be proved robust.

The public names are imported when they are used: ``import steadynet`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steadynet.attacks.region import InputRegion
    from steadynet.objectives.nbc import NBC
    from steadynet.runs.trained import load_trained
    from steadynet.training.loop import train
    from steadynet.training.settings import resolve
    from steadynet.verification.properties import Result, Verdict
    from steadynet.verification.verify import verify

__version__ = "0.1.0"

_HOME = {
    "NBC": "steadynet.objectives.nbc",
    "InputRegion": "steadynet.attacks.region",
    "Result": "steadynet.verification.properties",
    "Verdict": "steadynet.verification.properties",
    "load_trained": "steadynet.runs.trained",
    "resolve": "steadynet.training.settings",
    "train": "steadynet.training.loop",
    "verify": "steadynet.verification.verify",
}
__all__ = ["NBC", "InputRegion", "Result", "Verdict", "load_trained", "resolve", "train", "verify"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'steadynet' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
