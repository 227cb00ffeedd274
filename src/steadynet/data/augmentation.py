"""Random shifts and mirror images, drawn from torch's global generator, a whole batch at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4


def augmented(images: Tensor) -> Tensor:
    """(N, C, H, W) images, each shifted by up to 4 pixels either way (zeros come in) and mirrored with chance 1/2."""
    down, right = torch.randint(0, 2 * PADDING + 1, (2, len(images)))
    return cropped(images, down, right, torch.rand(len(images)) < 0.5)


def cropped(images: Tensor, down: Tensor, right: Tensor, mirror: Tensor) -> Tensor:
    """The H×W window at (down, right) of each zero-padded image, mirrored left to right where `mirror` holds.

    >>> image = torch.tensor([[[[1.0, 2.0]]]])
    >>> cropped(image, torch.tensor([4]), torch.tensor([5]), torch.tensor([False]))
    tensor([[[[2., 0.]]]])
    >>> cropped(image, torch.tensor([4]), torch.tensor([4]), torch.tensor([True]))
    tensor([[[[2., 1.]]]])
    """
    count, _, height, width = images.shape
    padded = F.pad(images, (PADDING,) * 4).permute(0, 2, 3, 1)  # (N, H + 8, W + 8, C)
    across = torch.arange(width).expand(count, width)
    columns = right[:, None] + torch.where(mirror[:, None], width - 1 - across, across)  # (N, W)
    rows = down[:, None] + torch.arange(height)  # (N, H)
    image = torch.arange(count)[:, None, None]
    return padded[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
