"""Verification properties and what can be said of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode


class Verdict(str, Enum):
    """One word, one meaning."""

    UNSAT = "unsat"  # proved: no input of the region gets another label
    SAT = "sat"  # a counterexample that replays
    TIMEOUT = "timeout"  # not decided in its time
    UNKNOWN = "unknown"  # an incomplete verifier gave up
    ERROR = "error"  # something broke; the reason is kept


@dataclass(frozen=True)
class Properties:
    """ "Does each image keep its label everywhere in its region?" for many images of one network."""

    network: nn.Module
    images: Tensor
    labels: Tensor
    region: InputRegion
    origin: Properties | None = None  # the same where they came from: a counterexample must be one there, too

    def __post_init__(self) -> None:
        if self.images.is_floating_point() and torch.finfo(self.images.dtype).bits < 32:
            raise UserError(f"images of {self.images.dtype}: bounds hold for networks in float32 or float64 only")

    @classmethod
    def around(cls, network: nn.Module, images: Tensor, labels: Tensor, eps: float) -> Properties:
        """Local robustness: the ε-box around each image, inside [0, 1]."""
        return cls(network, images, labels, InputRegion.around(images, eps))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor | slice) -> Properties:
        origin = None if self.origin is None else self.origin[rows.to("cpu") if isinstance(rows, Tensor) else rows]
        return Properties(self.network, self.images[rows], self.labels[rows], self.region[rows], origin)

    def moved(self, network: nn.Module, device: torch.device) -> Properties:
        """The same for a copy of the network on another device."""
        images, labels, *corners = (
            tensor.to(device) for tensor in (self.images, self.labels, self.region.lower, self.region.upper)
        )
        return Properties(network, images, labels, InputRegion(*corners), origin=self)


@dataclass(frozen=True)
class Result:
    """The verdict on one problem, with its evidence."""

    verdict: Verdict
    seconds: float
    counterexample: Tensor | None = None
    margin: float | None = None  # a proved lower bound of the smallest margin
    stable_share: float | None = None
    stable_method: str | None = None
    subproblems: int = 0
    decided_by: str = ""
    reason: str = ""


def is_counterexample(properties: Properties, index: int, point: Tensor) -> bool:
    """Whether a point lies in the region, exactly, and the network, run on it alone, gives it another label."""
    origin = properties.origin
    if origin is not None:
        with evaluation_mode(origin.network):
            if not is_counterexample(origin, index, point.to(origin.images.device)):
                return False
    single = point[None]
    if not bool(properties.region[index : index + 1].contains(single)):
        return False
    with torch.no_grad():
        return int(properties.network(single).argmax(1)) != int(properties.labels[index])
