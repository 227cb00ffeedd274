"""steadynet: train neural networks that can be proved robust.

The public names below are imported on first use, so ``import steadynet`` itself is fast and does not import PyTorch.

>>> from steadynet import NBC, crown_bounds, evaluate, load_trained, resolve, train, verify
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steadynet.attacks.region import InputRegion
    from steadynet.bounds.crown import crown_bounds
    from steadynet.errors import UserError
    from steadynet.objectives.nbc import NBC
    from steadynet.runs.evaluation import evaluate
    from steadynet.runs.trained import load_trained
    from steadynet.training.loop import train
    from steadynet.training.settings import resolve
    from steadynet.verification.properties import Result, Verdict
    from steadynet.verification.radius import largest_radius
    from steadynet.verification.results import Results
    from steadynet.verification.verify import verify

__version__ = "0.1.0"

__all__ = [
    "NBC",
    "InputRegion",
    "Result",
    "Results",
    "UserError",
    "Verdict",
    "crown_bounds",
    "evaluate",
    "largest_radius",
    "load_trained",
    "resolve",
    "train",
    "verify",
]

# The module that defines each public name.
_DEFINED_IN = {
    "NBC": "steadynet.objectives.nbc",
    "InputRegion": "steadynet.attacks.region",
    "Result": "steadynet.verification.properties",
    "Results": "steadynet.verification.results",
    "UserError": "steadynet.errors",
    "Verdict": "steadynet.verification.properties",
    "crown_bounds": "steadynet.bounds.crown",
    "evaluate": "steadynet.runs.evaluation",
    "largest_radius": "steadynet.verification.radius",
    "load_trained": "steadynet.runs.trained",
    "resolve": "steadynet.training.settings",
    "train": "steadynet.training.loop",
    "verify": "steadynet.verification.verify",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(_DEFINED_IN[name]), name)
    raise AttributeError(f"module 'steadynet' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
