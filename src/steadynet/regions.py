"""Regions of inputs beyond one ε: what :func:`steadynet.verify` takes as ``region=``.

Boxes are decided as they are. Changes that few numbers describe, such as brightness, become a first layer of the
network: its input is these numbers, so that the verifier can halve their ranges.

>>> import torch
>>> from steadynet import regions, verify
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
>>> images = torch.rand(2, 1, 2, 2)
>>> labels = model(images).argmax(1)
>>> verify(model, images, labels, region=regions.brightness(-1e-4, 1e-4)).summary()["proved"]
2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.data.samples import as_pixels
from steadynet.errors import UserError

__all__ = ["BoxRegion", "LinearRegion", "box", "brightness", "contrast", "linear", "mix", "patch", "per_channel"]


@dataclass(frozen=True)
class BoxRegion:
    """Inputs between a lower and an upper limit of each number.

    Attributes:
        name: What the region is, in words.
        limits: Returns the limits for images (batch, *image).
    """

    name: str
    limits: Callable[[Tensor], tuple[Tensor, Tensor]]

    def around(self, images: Tensor) -> InputRegion:
        """Return the boxes of images.

        Raises:
            UserError: The limits have another shape than the images, or a lower limit is above the upper one.
        """
        lower, upper = (limit.to(images) for limit in self.limits(images))
        for limit in (lower, upper):
            if limit.shape != images.shape:
                raise UserError(
                    f"{self.name}: the limits have the shape {tuple(limit.shape)}, and the images {tuple(images.shape)}"
                )
        if bool((lower > upper).any()):
            raise UserError(f"{self.name}: a lower limit is above its upper limit")
        return InputRegion(lower, upper)


@dataclass(frozen=True)
class LinearRegion:
    """Images start + Σ θ_k · direction_k, with each θ_k in its range, clipped to [0, 1].

    Attributes:
        name: What the region is, in words.
        directions: Returns the start (batch, *image) and the directions (batch, k, *image) for images.
        low: The least value of each θ_k.
        high: The largest value of each θ_k.
    """

    name: str
    directions: Callable[[Tensor], tuple[Tensor, Tensor]]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high) or not self.low:
            raise UserError(f"{self.name}: {len(self.low)} least and {len(self.high)} largest values")
        if not all(low <= high for low, high in zip(self.low, self.high, strict=True)):
            raise UserError(f"{self.name}: a least value is above its largest value")

    def layers(self, images: Tensor) -> list[nn.Sequential]:
        """Return, for each image, the layers that compute a changed image from the numbers θ."""
        start, directions = (value.to(images) for value in self.directions(images))
        if directions.shape != (len(images), len(self.low), *images.shape[1:]) or start.shape != images.shape:
            raise UserError(
                f"{self.name}: directions of shape {tuple(directions.shape)} do not fit images of shape "
                f"{tuple(images.shape)} and {len(self.low)} ranges"
            )
        return [_changed_image(*pair) for pair in zip(start, directions, strict=True)]

    def box(self, count: int, like: Tensor) -> InputRegion:
        """Return the ranges of θ as boxes (count, k), rounded to the precision of ``like``."""
        lower, upper = (torch.tensor(values, dtype=torch.float64).to(like) for values in (self.low, self.high))
        return InputRegion(lower.expand(count, -1), upper.expand(count, -1))


def _changed_image(start: Tensor, directions: Tensor) -> nn.Sequential:
    layer = nn.Linear(len(directions), start.numel()).to(start)
    with torch.no_grad():
        layer.weight.copy_(directions.flatten(1).T)
        layer.bias.copy_(start.flatten())
    layers = [layer] if start.dim() == 1 else [layer, nn.Unflatten(1, tuple(start.shape))]
    return nn.Sequential(*layers, nn.Hardtanh(0.0, 1.0)).eval().requires_grad_(False)


def box(lower: Any, upper: Any) -> BoxRegion:
    """Limits for each number of each image, or the same limits for all images: tabular data with a range per feature.

    Args:
        lower: The lower limits, (batch, *image) or (*image).
        upper: The upper limits, likewise.
    """
    limits = as_pixels(lower), as_pixels(upper)
    return BoxRegion("a box", lambda images: (limits[0].expand(images.shape), limits[1].expand(images.shape)))


def per_channel(eps: Sequence[float]) -> BoxRegion:
    """An ε of its own for each channel (each feature of flat inputs), clipped to [0, 1]."""

    def limits(images: Tensor) -> tuple[Tensor, Tensor]:
        if len(eps) != images.shape[1]:
            raise UserError(f"{len(eps)} radii for {images.shape[1]} channels")
        sizes = torch.tensor(eps).to(images).view(1, -1, *[1] * (images.dim() - 2))
        return (images - sizes).clamp_min(0), (images + sizes).clamp_max(1)

    return BoxRegion("an ε per channel", limits)


def patch(top: int, left: int, height: int, width: int, eps: float = 1.0) -> BoxRegion:
    """Any change of at most ε inside one rectangle of an image, clipped to [0, 1]; with ε = 1 anything may be there."""

    def limits(images: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = images.shape[-2:]
        if images.dim() < 3 or top < 0 or left < 0 or top + height > rows or left + width > columns:
            raise UserError(f"the patch does not lie inside images of {tuple(images.shape[1:])}")
        inside = torch.zeros_like(images)
        inside[..., top : top + height, left : left + width] = eps
        return (images - inside).clamp_min(0), (images + inside).clamp_max(1)

    return BoxRegion("a patch", limits)


def brightness(low: float, high: float) -> LinearRegion:
    """The same number between ``low`` and ``high`` added to every pixel, clipped to [0, 1]."""
    return LinearRegion("brightness", lambda images: (images, torch.ones_like(images)[:, None]), (low,), (high,))


def contrast(low: float, high: float) -> LinearRegion:
    """Every pixel multiplied by the same factor between ``low`` and ``high``, clipped to [0, 1]."""
    return LinearRegion("contrast", lambda images: (torch.zeros_like(images), images[:, None]), (low,), (high,))


def mix(others: Any, most: float) -> LinearRegion:
    """Each image mixed with another one: (1 − θ) · image + θ · other, for θ from 0 to ``most``.

    Args:
        others: One image for all, (*image), or one per image, (batch, *image).
        most: The largest share of the other image.
    """
    pixels = as_pixels(others)
    return LinearRegion("a mix", lambda images: (images, (pixels.to(images) - images)[:, None]), (0.0,), (most,))


def linear(directions: Any, low: Sequence[float], high: Sequence[float]) -> LinearRegion:
    """Images changed along given directions, such as a bias field: image + Σ θ_k · direction_k, clipped to [0, 1].

    Args:
        directions: The directions, (k, *image): the same for all images.
        low: The least value of each θ_k.
        high: The largest value of each θ_k.
    """
    given = directions if isinstance(directions, Tensor) else torch.as_tensor(directions)

    def all_directions(images: Tensor) -> tuple[Tensor, Tensor]:
        return images, given.to(images)[None].expand(len(images), *given.shape)

    return LinearRegion("given directions", all_directions, tuple(low), tuple(high))
