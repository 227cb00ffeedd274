"""Networks for the benchmarks: untrained, half-trained and trained, kept in the folder of data sets.

    python benchmarks/trained_networks.py [MODEL …]

trains what is missing, on one thread: a few epochs of nbc on MNIST or CIFAR-10 with the search of the paper, the radius
rising over the first half. A training that was stopped goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from steadynet import load_trained, resolve, train
from steadynet.data.cache import where
from steadynet.networks import ARCHITECTURES
from steadynet.runs.directory import RunDirectory
from steadynet.training.loop import resume

STAGES = ("untrained", "half-trained", "trained")


class Setting(NamedTuple):
    """What a network is trained on."""

    data: str
    eps: float
    beta: float
    epochs: int  # of each half


SETTINGS = {"M1": Setting("mnist", 0.3, 1.0, 2), "C1": Setting("cifar10", 8 / 255, 2.0, 4)}


def network_at(stage: str, model: str) -> nn.Module:
    """A network that was trained so far, in evaluation mode."""
    if stage == "untrained":
        torch.manual_seed(0)
        return ARCHITECTURES[model].build().eval()
    half = _run(model, "half")
    run = half if stage == "half-trained" else _run(model, "trained", init=half)
    return load_trained(run).network.eval()


def _run(model: str, name: str, init: Path | None = None) -> Path:
    """The run directory of one half of a training, which is trained unless it is finished."""
    place, run = SETTINGS[model], where() / "benchmarks" / "inner-search" / f"{model}-nbc-{name}"
    settings = {"data": place.data, "model": model, "method": "nbc", "eps": place.eps, "epochs": place.epochs}
    settings |= {"beta": place.beta, "lr": 1e-3, "threads": 1, "device": "cpu", "search": "paper"}
    if init:
        settings |= {"init": str(init), "schedule": "drops", "drops": (0.5, 0.75)}
    else:
        settings |= {"warmup": float(place.epochs)}
    if RunDirectory(run).is_run():
        resume(run)
    else:
        print(f"training {run.name} for {place.epochs} epochs on {place.data}", flush=True)
        train(resolve(settings), run)
    return run


if __name__ == "__main__":
    for asked in sys.argv[1:] or SETTINGS:
        network_at("trained", asked)
