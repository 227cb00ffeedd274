"""What was asked of a network beyond the label in an ε-box, as words that a table keeps and a command line takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steadynet import claims, regions
from steadynet.attacks.region import InputRegion
from steadynet.claims import AnyClaim
from steadynet.errors import UserError, one_line
from steadynet.regions import BoxRegion, LinearRegion

LABEL_STAYS = "the label stays"
CLAIM_FORMS = "top K, never CLASS, within DELTA, rises OUTPUT FEATURE [TOLERANCE], falls OUTPUT FEATURE [TOLERANCE]"
REGION_KINDS = ("eps", "region", "brightness", "contrast", "patch", "channel-eps")


@dataclass(frozen=True)
class Asked:
    """A region and a claim.

    Attributes:
        kind: The kind of the region, one of ``REGION_KINDS``: the name of its flag.
        parameters: Its parameters, as a user types them, separated by spaces; for ``region``, the path of the file.
        claim: The claim, as a user types it; empty if it is that the label stays.

    >>> Asked("brightness", "-0.1 0.1").described()
    'brightness -0.1 to 0.1: the label stays'
    >>> Asked("eps", "0.1", "top 3").flags()
    ['--eps', '0.1', '--claim', 'top', '3']
    """

    kind: str
    parameters: str
    claim: str = ""

    def described(self) -> str:
        """Say it in words."""
        return f"{self.region_in_words()}: {self.claim_in_words()}"

    def region_in_words(self) -> str:
        """Say what the region is."""
        words = self.parameters.split()
        return {
            "eps": f"each number within ε {self.parameters}",
            "region": f"each number within its limits in {self.parameters}",
            "brightness": f"brightness {' to '.join(words)}",
            "contrast": f"contrast {' to '.join(words)}",
            "patch": "a patch (top, left, height, width: " + ", ".join(words) + ")",
            "channel-eps": f"ε per channel {', '.join(words)}",
        }[self.kind]

    def claim_in_words(self) -> str:
        """Say what is claimed."""
        claim = self.the_claim()
        return LABEL_STAYS if claim is None else claim.name

    def flags(self) -> list[str]:
        """Return the flags of ``steadynet verify`` that ask for it."""
        words = [self.parameters] if self.kind == "region" else self.parameters.split()
        return [f"--{self.kind}", *words, *(["--claim", *self.claim.split()] if self.claim else [])]

    def the_claim(self) -> AnyClaim | None:
        """Return the claim; None if it is that the label stays."""
        return parse_claim(self.claim.split()) if self.claim else None

    def region(self, index: Tensor, count: int, pixels: Tensor) -> BoxRegion | LinearRegion:
        """Return the region of some images.

        Args:
            index: Their positions in the test set.
            count: How many images the test set has.
            pixels: The images.

        Raises:
            UserError: The parameters make no sense.
        """
        if self.kind == "region":
            return _box_from(Path(self.parameters), index, count, pixels)
        numbers = [float(word) for word in self.parameters.split()]
        if self.kind == "patch":
            return regions.patch(*(int(number) for number in numbers))
        if self.kind == "channel-eps":
            return regions.per_channel(numbers)
        if self.kind == "eps":
            return BoxRegion(f"ε {self.parameters}", lambda images: _corners(InputRegion.around(images, numbers[0])))
        low, high = numbers
        return regions.brightness(low, high) if self.kind == "brightness" else regions.contrast(low, high)


def _corners(box: InputRegion) -> tuple[Tensor, Tensor]:
    return box.lower, box.upper


def parse_claim(words: Sequence[str]) -> AnyClaim:
    """Read a claim as a user types it.

    Raises:
        UserError: There is no such claim.

    >>> parse_claim(["within", "0.5"]).name, parse_claim(["rises", "0", "3"]).name
    ('outputs within 0.5', 'output 0 never falls by 0.001 as feature 3 grows')
    """
    form, *rest = words
    try:
        if form == "top" and len(rest) == 1:
            return claims.top_k(int(rest[0]))
        if form == "never" and len(rest) == 1:
            return claims.never(int(rest[0]))
        if form == "within" and len(rest) == 1:
            return claims.within(float(rest[0]))
        if form in ("rises", "falls") and len(rest) in (2, 3):
            tolerance = {"tolerance": float(rest[2])} if rest[2:] else {}
            return claims.monotone(int(rest[1]), int(rest[0]), decreasing=form == "falls", **tolerance)
    except ValueError as error:
        raise UserError(f"--claim {' '.join(words)}: {one_line(error)}") from error
    raise UserError(f"there is no claim '{' '.join(words)}': the claims are {CLAIM_FORMS}")


def _box_from(path: Path, index: Tensor, count: int, pixels: Tensor) -> BoxRegion:
    """Read the limits of a box: (*image) for all images, or (test images, *image)."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            limits = [torch.from_numpy(np.asarray(stored[name], dtype=np.float64)) for name in ("lower", "upper")]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} cannot be read: it needs the arrays lower and upper ({one_line(error)})") from error
    per_image = [limit[index] if limit.shape == (count, *pixels.shape[1:]) else limit for limit in limits]
    for limit in per_image:
        if limit.shape not in (pixels.shape, pixels.shape[1:]):
            raise UserError(
                f"{path}: limits of shape {tuple(limit.shape)} fit neither one image, {tuple(pixels.shape[1:])}, "
                f"nor the {count} test images"
            )
    return regions.box(*per_image)
