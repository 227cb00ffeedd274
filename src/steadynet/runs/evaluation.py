"""How good a network is, without proofs: accuracy, accuracy under attack, stable share by intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from steadynet.attacks.pgd import find_counterexamples
from steadynet.attacks.region import InputRegion
from steadynet.bounds import UnsupportedNetworkError, interval_bounds
from steadynet.data import Images, batches
from steadynet.networks.evaluation_mode import evaluation_mode


def accuracy(network: nn.Module, images: Images, batch_size: int = 512) -> float:
    """The share of images that get their own label."""
    device = next(network.parameters()).device
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
    """The share of images that keep their label under PGD: an upper bound of what can be proved."""
    device = next(network.parameters()).device
    safe = 0
    for batch in batches(images, batch_size):
        pixels, labels = (tensor.to(device) for tensor in batch)
        region = InputRegion.around(pixels, radius)
        found, _ = find_counterexamples(network, pixels, labels, region, steps=steps, restarts=restarts)
        safe += int((~found).sum())
        on_images(len(labels))
    return safe / len(images)


def interval_stable_share(
    network: nn.Module, images: Images, radius: float, count: int | None = None, batch_size: int = 128
) -> float | None:
    """The mean share of ReLUs that intervals show to be stable; None for a network they are not known for."""
    device = next(network.parameters()).device
    part = images.subset(torch.arange(min(count or len(images), len(images))))
    total = 0.0
    with torch.no_grad(), evaluation_mode(network):
        for pixels, _ in batches(part, batch_size):
            try:
                bounds = interval_bounds(network, InputRegion.around(pixels.to(device), radius))
            except UnsupportedNetworkError:
                return None
            total += float(bounds.stable_share().sum())
    return total / len(part)


def evaluate(
    network: nn.Module,
    images: Images,
    radii: Sequence[float],
    *,
    pgd_steps: int = 100,
    restarts: int = 1,
    on_images: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """Test accuracy, and per radius the attacked accuracy and the stable share, with how they were measured."""
    return {
        "images": len(images),
        "accuracy": accuracy(network, images),
        "pgd_steps": pgd_steps,
        "pgd_restarts": restarts,
        "radii": [
            {
                "eps": radius,
                "pgd_accuracy": pgd_accuracy(
                    network, images, radius, steps=pgd_steps, restarts=restarts, on_images=on_images
                ),
                "stable_share_ibp": interval_stable_share(network, images, radius),
            }
            for radius in radii
        ],
    }
