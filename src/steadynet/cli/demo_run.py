"""The whole idea in a few minutes, on embedded data: the same network trained twice, and what can be proved of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from steadynet.files import write_json
from steadynet.runs.evaluation import evaluate
from steadynet.runs.trained import TrainedNetwork, load_trained
from steadynet.training.loop import train
from steadynet.training.observer import Observer
from steadynet.training.settings import resolve
from steadynet.verification.run import RunVerification, summarise
from steadynet.verification.verdicts import Row
from steadynet.verification.verify import make_verifier

METHODS = ("natural", "nbc")
RADII = (0.1, 0.2, 0.3)
PROVED_RADIUS, PER_CLASS, TIMEOUT = 0.1, 5, 2.0

Follow = Callable[[RunVerification], Callable[[Row], None]]


def run_demo(
    out: Path, observer: Callable[[str], Observer], follow: Follow, epochs: int = 30
) -> dict[str, dict[str, Any]]:
    """Train both networks into ``out``, measure and verify them: a result a method, its verdicts as ``verified``."""
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
        write_json(run.evaluation, results[method])
        results[method]["verified"] = _verified(trained, follow)
    return results


def _verified(trained: TrainedNetwork, follow: Follow) -> dict[str, Any]:
    test = trained.data().test
    index = test.first_of_each_class(PER_CLASS)
    torch.manual_seed(0)
    verifier = make_verifier("branch_and_bound", {"timeout": TIMEOUT})
    asked = RunVerification(trained, test, index, [PROVED_RADIUS], verifier, trained.config["data"])
    asked.decide(on_row=follow(asked))
    return summarise(list(asked.rows.values()))
