"""Augmentation: random shifts and mirror images, computed for a whole batch at once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4


def augmented(images: Tensor) -> Tensor:
    """Shift and mirror images at random.

    Each image is shifted by up to 4 pixels along both axes, with zeros at the edge, and mirrored with probability 1/2.
    The random numbers come from the global generator of PyTorch.

    Args:
        images: The images, (N, C, H, W).

    Returns:
        As many images of the same shape.
    """
    down, right = torch.randint(0, 2 * PADDING + 1, (2, len(images)))
    return cropped(images, down, right, torch.rand(len(images)) < 0.5)


def cropped(images: Tensor, down: Tensor, right: Tensor, mirror: Tensor) -> Tensor:
    """Cut a window of H×W pixels out of each image, which is first padded with 4 zeros on all sides.

    Args:
        images: The images, (N, C, H, W).
        down: The first row of each window, (N,); 4 for no shift.
        right: The first column of each window, (N,); 4 for no shift.
        mirror: Whether to mirror each window left to right, (N,).

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
