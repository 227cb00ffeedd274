"""InputRegion: the box of inputs a property speaks of, clipped to the pixel range."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.errors import UserError


@dataclass(frozen=True)
class InputRegion:
    """A box [lower, upper] an image, both of shape (batch, *image).

    >>> region = InputRegion.around(torch.tensor([[0.1, 0.5]]), 0.2)
    >>> region.lower, region.upper
    (tensor([[0.0000, 0.3000]]), tensor([[0.3000, 0.7000]]))
    """

    lower: Tensor
    upper: Tensor

    @classmethod
    def around(cls, images: Tensor, radius: float, *, clip: bool = True) -> InputRegion:
        """The ε-box around each image; ``clip`` keeps it inside [0, 1], where pixels live."""
        lower, upper = images - radius, images + radius
        if clip:
            lower, upper = lower.clamp_min(0), upper.clamp_max(1)
        if bool((lower > upper).any()):
            raise UserError(
                f"no pixel of [0, 1] lies within {radius} of some images: clip=False takes images that are normalised"
                if clip
                else f"radius = {radius}: a radius is 0 or more"
            )
        return cls(lower, upper)

    def project(self, points: Tensor) -> Tensor:
        """The nearest points inside the box."""
        return torch.minimum(torch.maximum(points, self.lower), self.upper)

    def sample(self) -> Tensor:
        """One uniform point a box, from torch's own generator."""
        return self.project(torch.lerp(self.lower, self.upper, torch.rand_like(self.lower)))

    def contains(self, points: Tensor) -> Tensor:
        """Whether each point lies in its box, exactly; shape (batch,)."""
        return ((points >= self.lower) & (points <= self.upper)).flatten(1).all(1)

    def __getitem__(self, rows: Tensor | slice) -> InputRegion:
        return InputRegion(self.lower[rows], self.upper[rows])

    def __len__(self) -> int:
        return len(self.lower)
