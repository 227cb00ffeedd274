"""A subproblem on a condensed network."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class Part:
    """A subproblem: one margin with some ReLU signs fixed.

    Attributes:
        margin: the margin.
        lower: a lower bound of the margin as it was computed, by which subproblems are ordered. It proves nothing.
        neurons: the split ReLUs of the condensed network.
        signs: the side that each is held on.
        betas: the multiplier of each.
        slopes: (neurons,), the slopes that its parent ended with, in half precision; none for default ones.
        tried: whether a pass over the whole network has failed to prove it with slopes of its own.
    """

    margin: int
    lower: float
    neurons: tuple[int, ...]
    signs: tuple[int, ...]
    betas: tuple[float, ...]
    slopes: Tensor
    tried: bool = False

    def child(self, neuron: int, sign: int, lower: float) -> Part:
        """The part in which one more ReLU is held on one side."""
        return replace(
            self,
            lower=max(self.lower, lower),
            neurons=(*self.neurons, neuron),
            signs=(*self.signs, sign),
            betas=(*self.betas, 0.0),
            tried=False,
        )
