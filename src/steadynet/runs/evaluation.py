"""Measure a network without proofs: accuracy, accuracy under attack, share of stable ReLUs by interval bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from steadynet.attacks.pgd import find_counterexamples
from steadynet.attacks.region import InputRegion
from steadynet.bounds import UnsupportedNetworkError, interval_bounds
from steadynet.data import Images, batches
from steadynet.devices import device_of
from steadynet.errors import UserError
from steadynet.files import read_record, write_json
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.runs.directory import RunDirectory
from steadynet.runs.progress import ProgressBar
from steadynet.runs.trained import TrainedNetwork


@dataclass(frozen=True)
class RadiusEvaluation:
    """What was measured at one radius.

    Attributes:
        eps: The radius.
        pgd_accuracy: The share of images that kept their label under PGD.
        stable_share_ibp: The mean share of ReLUs that interval bounds prove stable. None if interval bounds do not
            support the network.
    """

    eps: float
    pgd_accuracy: float
    stable_share_ibp: float | None


@dataclass(frozen=True)
class Evaluation:
    """What :func:`evaluate` measured; ``evaluation.json`` holds the same fields.

    Attributes:
        images: How many images were attacked.
        accuracy: The share of images that get their label, without attack.
        pgd_steps: Steps of the attack.
        pgd_restarts: How many times the attack ran, each time from another random start.
        radii: One record per radius.
        accuracy_images: How many images ``accuracy`` was measured on, if these were others than the attacked ones.
        other_attacks: The same measurements with other numbers of attack steps.
    """

    images: int
    accuracy: float
    pgd_steps: int
    pgd_restarts: int
    radii: tuple[RadiusEvaluation, ...]
    accuracy_images: int | None = None
    other_attacks: tuple[Evaluation, ...] = ()

    def at(self, eps: float) -> RadiusEvaluation | None:
        """Return what was measured at a radius; None if nothing was."""
        return next((row for row in self.radii if row.eps == eps), None)

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``evaluation.json``."""
        content = asdict(self)
        if self.accuracy_images is None:
            del content["accuracy_images"], content["other_attacks"]
        else:
            content["other_attacks"] = [attack.to_json() for attack in self.other_attacks]
        return content


def write_evaluation(run: RunDirectory, evaluation: Evaluation) -> None:
    """Write a run's ``evaluation.json``."""
    write_json(run.evaluation, evaluation.to_json())


def read_evaluation(run: RunDirectory) -> Evaluation | None:
    """Read a run's ``evaluation.json``; None if the run was not evaluated.

    Raises:
        UserError: The file is damaged.
    """
    return read_record(run.evaluation, Evaluation) if run.evaluation.is_file() else None


def accuracy(network: nn.Module, images: Images, batch_size: int = 512) -> float:
    """Return the share of images that the network classifies correctly."""
    device = device_of(network)
    right = 0
    with torch.no_grad(), evaluation_mode(network):
        for pixels, labels in batches(images, batch_size):
            right += int((network(pixels.to(device)).argmax(1) == labels.to(device)).sum())
    return right / len(images)


def pgd_accuracy(
    network: nn.Module,
    images: Images,
    radius: float,
    *,
    steps: int,
    restarts: int = 1,
    batch_size: int = 512,
    on_images: Callable[[int], None] = lambda count: None,
) -> float:
    """Return the share of images that keep their label under PGD, an upper bound of the share that can be proved.

    ``on_images`` is called after each batch with the number of images attacked.
    """
    device = device_of(network)
    safe = 0
    for batch in batches(images, batch_size):
        pixels, labels = (tensor.to(device) for tensor in batch)
        region = InputRegion.around(pixels, radius)
        found, _ = find_counterexamples(network, pixels, labels, region, steps=steps, restarts=restarts)
        safe += int((~found).sum())
        on_images(len(labels))
    return safe / len(images)


def interval_stable_share(
    network: nn.Module,
    images: Images,
    radius: float,
    count: int | None = None,
    batch_size: int = 128,
    *,
    check: bool = True,
) -> float | None:
    """Return the mean share of ReLUs that interval bounds prove stable; None if it has none, or has no bounds.

    ``count`` limits the measurement to the first images. ``check`` may be False if the network was measured before.
    """
    device = device_of(network)
    part = images.subset(torch.arange(min(count or len(images), len(images))))
    total = 0.0
    with torch.no_grad(), evaluation_mode(network):
        for number, (pixels, _) in enumerate(batches(part, batch_size)):
            try:
                region = InputRegion.around(pixels.to(device), radius)
                bounds = interval_bounds(network, region, check=check and number == 0)
            except UnsupportedNetworkError:
                return None
            if not bounds.relus:  # sigmoids and tanhs have no sign that could be stable
                return None
            total += float(bounds.stable_share().sum())
    return total / len(part)


def evaluate(
    network: nn.Module | TrainedNetwork,
    images: Images | None = None,
    radii: float | Sequence[float] | None = None,
    *,
    pgd_steps: int = 100,
    restarts: int = 1,
    on_images: Callable[[int], None] | None = None,
    progress: bool | None = None,
) -> Evaluation:
    """Measure accuracy and, at each radius, accuracy under attack and the share of stable ReLUs.

    The attack starts at random points drawn from PyTorch's global generator: call ``torch.manual_seed`` first to get
    the same numbers again.

    Args:
        network: A trained network as :func:`load_trained` returns it, or any model of PyTorch.
        images: Labelled images. Unless given, the test images of the data set that the network was trained on.
        radii: One radius or several. Unless given, the radius that the network was trained for.
        pgd_steps: Steps of the attack.
        restarts: How many times the attack runs, each time from another random start.
        on_images: Called after each batch with the number of images attacked, for a progress bar of your own.
        progress: Whether to show a progress bar. Unless given, notebooks show one if there is no ``on_images``.

    Returns:
        The measurements, one record per radius in ``radii``.

    Raises:
        UserError: ``network`` is a plain model, and ``images`` or ``radii`` are missing; or weights of the network are
            NaN or infinite.

    A model that gives label 0 to every pixel brighter than 0.2:

    >>> model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    >>> weights = {"0.weight": [[1.0]], "0.bias": [0.0], "2.weight": [[1.0], [0.0]], "2.bias": [0.0, 0.2]}
    >>> _ = model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    >>> images = Images(torch.tensor([[0.5], [0.3]]), torch.tensor([0, 0]))
    >>> result = evaluate(model, images, radii=[0.05, 0.2])
    >>> result.accuracy, [(row.eps, row.pgd_accuracy) for row in result.radii]
    (1.0, [(0.05, 1.0), (0.2, 0.5)])
    """
    if isinstance(network, TrainedNetwork):
        images = network.data().test if images is None else images
        radii = network.config.eps if radii is None else radii
        network = network.network
    if images is None or radii is None:
        raise UserError(
            "evaluate needs images and radii for a model that is not of a run: evaluate(model, images, 0.1)"
        )
    if not all(bool(weights.isfinite().all()) for weights in network.state_dict().values()):
        raise UserError(f"{type(network).__name__} has weights that are NaN or infinite: there is nothing to measure")
    radii = [radii] if isinstance(radii, (int, float)) else radii
    with ProgressBar("attacking", False if progress is None and on_images is not None else progress) as bar:
        bar.start(len(images) * len(radii))

        def follow(count: int) -> None:
            bar.move(count)
            if on_images is not None:
                on_images(count)

        return _measured(network, images, radii, pgd_steps, restarts, follow)


def _measured(
    network: nn.Module,
    images: Images,
    radii: Sequence[float],
    pgd_steps: int,
    restarts: int,
    on_images: Callable[[int], None],
) -> Evaluation:
    """Return what :func:`evaluate` measures."""
    shares = _stable_shares(network, images, radii)
    return Evaluation(
        images=len(images),
        accuracy=accuracy(network, images),
        pgd_steps=pgd_steps,
        pgd_restarts=restarts,
        radii=tuple(
            RadiusEvaluation(
                eps=radius,
                pgd_accuracy=pgd_accuracy(
                    network, images, radius, steps=pgd_steps, restarts=restarts, on_images=on_images
                ),
                stable_share_ibp=share,
            )
            for radius, share in zip(radii, shares, strict=True)
        ),
    )


def _stable_shares(network: nn.Module, images: Images, radii: Sequence[float]) -> list[float | None]:
    """Return the share of stable ReLUs at each radius. Only the first measurement checks the network."""
    shares: list[float | None] = []
    for radius in radii:
        unsupported = shares[:1] == [None]
        shares.append(None if unsupported else interval_stable_share(network, images, radius, check=not shares))
    return shares
