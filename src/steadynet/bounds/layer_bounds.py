"""Bounds of the ReLU inputs and of the output, and which ReLUs they show to be stable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.graph.operations import Interval


@dataclass(frozen=True)
class LayerBounds:
    """What a bound method gives.

    Attributes:
        method: the method's name; a share of stable ReLUs means nothing without it.
        relus: one interval per ReLU layer, of its inputs.
        output: the interval of the network's output.
    """

    method: str
    relus: Sequence[Interval]
    output: Interval

    def __repr__(self) -> str:
        share = f"{100 * float(self.stable_share().mean()):.1f} % of the ReLUs stable" if self.relus else "no ReLUs"
        return f"LayerBounds({self.method}: {len(self.output.lower)} regions, {share})"

    def stable(self) -> list[Tensor]:
        """Per ReLU layer, which ReLUs cannot change sign (lower ≥ 0 or upper ≤ 0)."""
        return [layer.stable() for layer in self.relus]

    def stable_share(self) -> Tensor:
        """Per image, the share of stable ReLUs of all layers together; shape (batch,)."""
        return stable_share(self.relus)


def stable_share(relus: Sequence[Interval]) -> Tensor:
    """Per property, the share of ReLUs whose input cannot change sign; shape (properties,).

    >>> stable_share([Interval(torch.tensor([[-1.0, 0.5]]), torch.tensor([[1.0, 2.0]]))])
    tensor([0.5000])
    """
    return torch.cat([layer.stable().flatten(1) for layer in relus], 1).float().mean(1)
