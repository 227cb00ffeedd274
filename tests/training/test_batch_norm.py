"""Statistics of batch norm over all training images."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from steadynet import load_trained, resolve, train


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize(("method", "precise"), [("natural", False), ("sabr", True), ("ibp", False)])
def test_precise_statistics_are_those_of_all_training_images(method: str, precise: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    images = SimpleNamespace(images=torch.rand(40, 1, 6, 6), labels=torch.arange(40) % 2)
    data = SimpleNamespace(train=images, test=images, classes=("even", "odd"))
    settings = resolve({"method": method, "eps": 0.1, "epochs": 2, "batch_size": 10, "validation": 0.0})
    run = train(settings, tmp_path / "run", network=network(), data=data)
    norm = load_trained(run.path, network()).network[1]
    pixels = images.images.flatten(1)
    within = sum(part.var(0) for part in pixels.split(10)) / 4  # PyTorch averages the variances of the batches
    assert torch.allclose(norm.running_mean, pixels.mean(0), atol=1e-6) == precise
    assert torch.allclose(norm.running_var, within, atol=1e-6) == precise
