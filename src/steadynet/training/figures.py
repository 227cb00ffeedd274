"""What a change of a trained network is judged by: figures before and after it, and the new run that holds it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from steadynet.data import Dataset, Images
from steadynet.errors import UserError
from steadynet.files import write_atomically
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy, interval_stable_share, pgd_accuracy
from steadynet.runs.trained import TrainedNetwork

Prove = Callable[[nn.Module, Images, float], float]  # (network, images, radius) -> the share that is proved robust

ATTACKED_IMAGES = 500
ATTACK_STEPS = 40


@dataclass(frozen=True)
class NetworkFigures:
    """What was measured of a network on test images, before or after a change.

    Attributes:
        accuracy: The share of all test images that get their label.
        eps: The radius of the other figures.
        stable_share_ibp: The mean share of ReLUs that interval bounds prove stable. None if interval bounds do not
            support the network.
        pgd_accuracy: The share of the first 500 test images that keep their label under PGD-40. None in records of
            earlier versions.
        proved: The share of the first test images that the verifier proves robust; None if none were verified.
        verified_images: How many images ``proved`` is about.
    """

    accuracy: float
    eps: float
    stable_share_ibp: float | None
    pgd_accuracy: float | None = None
    proved: float | None = None
    verified_images: int = 0


@dataclass(frozen=True)
class Judge:
    """How a network is measured before and after a change.

    Args:
        prove: Returns the share of images that are proved robust. Training does not know verifiers, so the caller
            brings one.
        verified_images: How many test images to prove; 0 for none.
    """

    prove: Prove | None = None
    verified_images: int = 0

    def figures(self, network: nn.Module, dataset: Dataset, eps: float) -> NetworkFigures:
        """Measure a network at one radius. The attack starts at the same random points at every call."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            attacked = pgd_accuracy(network, first(dataset.test, ATTACKED_IMAGES), eps, steps=ATTACK_STEPS)
        verified = first(dataset.test, self.verified_images)
        return NetworkFigures(
            accuracy=accuracy(network, dataset.test),
            eps=eps,
            stable_share_ibp=interval_stable_share(network, dataset.test, eps),
            pgd_accuracy=attacked,
            proved=self.prove(network, verified, eps) if self.prove and len(verified) else None,
            verified_images=len(verified) if self.prove else 0,
        )


def first(images: Images, count: int) -> Images:
    """Return the first images, at most ``count``."""
    return images.subset(torch.arange(min(count, len(images))))


def new_run(out: str | Path) -> RunDirectory:
    """Return a run directory that a changed network can be written to.

    Raises:
        UserError: The directory exists.
    """
    run = RunDirectory(Path(out))
    if not run.is_free():
        raise UserError(f"{run.path} exists: choose another --out")
    return run


def copy_sources(trained: TrainedNetwork, run: RunDirectory) -> None:
    """Copy the user's own files of a run, of the model and of methods, into a new run."""
    copies = {run.model_source: trained.run.model_source}
    for path in sorted(trained.run.method_sources.glob("*.py")):
        copies[run.method_sources / path.name] = path
    for copy, source in copies.items():
        if source.is_file():
            write_atomically(copy, partial(shutil.copyfile, source))
