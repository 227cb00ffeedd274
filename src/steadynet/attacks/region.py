"""The region of a property: a box of inputs around each image, clipped to the range of pixels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.errors import UserError


@dataclass(frozen=True)
class InputRegion:
    """One box [lower, upper] per image.

    Args:
        lower: The smallest value of each pixel, (batch, *image).
        upper: The largest value of each pixel, (batch, *image).

    >>> region = InputRegion.around(torch.tensor([[0.1, 0.5]]), 0.2)
    >>> region.lower, region.upper
    (tensor([[0.0000, 0.3000]]), tensor([[0.3000, 0.7000]]))
    """

    lower: Tensor
    upper: Tensor

    @classmethod
    def around(cls, images: Tensor, radius: float, *, clip: bool = True) -> InputRegion:
        """Return the box of all inputs within a radius of each image, in the maximum norm.

        Args:
            images: The centres, (batch, *image).
            radius: The radius ε.
            clip: Whether to keep the boxes inside [0, 1], the range of pixels.

        Raises:
            UserError: The radius is negative, or an image lies outside [0, 1] by more than the radius.
        """
        lower, upper = images - radius, images + radius
        if clip:
            lower, upper = lower.clamp_min(0), upper.clamp_max(1)
        if bool((lower > upper).any()):
            raise UserError(_why_empty(images, radius, clip))
        return cls(lower, upper)

    def project(self, points: Tensor) -> Tensor:
        """Return the nearest points inside the boxes."""
        return torch.minimum(torch.maximum(points, self.lower), self.upper)

    def sample(self) -> Tensor:
        """Draw one uniform point per box, from the global generator of PyTorch."""
        return self.project(torch.lerp(self.lower, self.upper, torch.rand_like(self.lower)))

    def contains(self, points: Tensor) -> Tensor:
        """Tell whether each point lies in its box, without any tolerance; shape (batch,)."""
        return ((points >= self.lower) & (points <= self.upper)).flatten(1).all(1)

    def __getitem__(self, rows: Tensor | slice) -> InputRegion:
        return InputRegion(self.lower[rows], self.upper[rows])

    def __repr__(self) -> str:
        return f"InputRegion({len(self)} boxes of shape {tuple(self.lower.shape[1:])})"

    def __len__(self) -> int:
        return len(self.lower)


def _why_empty(images: Tensor, radius: float, clip: bool) -> str:
    if not clip:
        return f"radius = {radius}: a radius is 0 or more"
    if images.min() >= 0 and images.max() > 2:
        return f"the images have values up to {float(images.max()):g}, and pixels lie in [0, 1]: divide them by 255"
    return f"no pixel of [0, 1] lies within {radius} of some images: clip=False takes images that are normalised"
