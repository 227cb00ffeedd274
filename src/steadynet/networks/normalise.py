"""Normalisation as the first layer of a network, so that ε is always a distance between pixels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """Compute (x − mean) / std per channel.

    Args:
        mean: The mean of each channel.
        std: The standard deviation of each channel.
        image_axes: The number of axes of one image: 3 for (channels, height, width), 1 for flat features.

    >>> Normalise([0.5], [0.25])(torch.ones(1, 1, 2, 2)).unique()
    tensor([2.])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], image_axes: int = 3) -> None:
        super().__init__()
        shape = (-1, *(1 for _ in range(image_axes - 1)))  # (C, 1, 1) for images, (D,) for flat features
        self.register_buffer("mean", torch.tensor(mean).view(shape))
        self.register_buffer("std", torch.tensor(std).view(shape))

    def forward(self, images: Tensor) -> Tensor:
        """Normalise images, (batch, *image)."""
        return (images - self.mean) / self.std
