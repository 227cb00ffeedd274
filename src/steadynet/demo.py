"""The whole idea in a few minutes, on embedded data: the same network, trained twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from steadynet.evaluation import evaluate
from steadynet.observer import Observer
from steadynet.settings import resolve
from steadynet.trained import load_trained
from steadynet.training import train

RADII = (0.1, 0.2, 0.3)
METHODS = ("natural", "nbc")


def run_demo(out: Path, observer: Callable[[str], Observer], epochs: int = 20) -> dict[str, dict[str, Any]]:
    """Train both networks into ``out`` and measure them: a result a method."""
    results = {}
    for method in METHODS:
        settings = resolve(
            {
                "data": "digits",
                "model": "M1",
                "method": method,
                "eps": 0.3,
                "epochs": epochs,
                "lr": 2e-3,
                "schedule": "one-cycle",
            }
        )
        run = train(settings, out / method, overwrite=True, observer=observer(method))
        trained = load_trained(run.path)
        results[method] = evaluate(trained.network, trained.data().test, RADII, pgd_steps=20)
    return results
