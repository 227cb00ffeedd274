"""Passes over the condensed network of one property that try the leaves of an earlier proof, and split some of them.

A leaf that is nearly proved needs little, and a split of the ReLU whose upper line costs most mostly gives that. It is
cheaper than an ascent: two passes in place of sixteen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.condensed_bounds import Columns
from steadynet.bounds.condensed_proof import CondensedProof
from steadynet.verification.search.earlier_leaves import EarlierLeaves

SAMPLE = 96  # leaves of a proof that the first pass tries as they are
MOST_FAILING = 0.8  # share of such leaves, beyond which the others are not tried, but repaired at once
BATCH = 512  # leaves bounded at once
NEARLY = 0.3  # of how far below zero CROWN's bound is: leaves that are no farther are split
DEPTH = 2  # times


@dataclass(frozen=True)
class LeafTrial:
    """Bounds leaves as they are, and splits those that are nearly proved.

    Attributes:
        proving: passes over the condensed network.
        crown: (margins,), CROWN's bounds.
        proved: notes the bounds (n,) of some subproblems; a mask of those that are proved.
        out_of_time: when this says yes, what is not tried yet stays as it is.
    """

    proving: CondensedProof
    crown: Tensor
    proved: Callable[[Columns, Tensor], Tensor]
    out_of_time: Callable[[], bool]

    def run(self, leaves: EarlierLeaves, depth: int) -> tuple[EarlierLeaves, float]:
        """Bound some leaves first, the others while not too many of the last ones fail, and split what nearly holds.

        Returns:
            What is not proved: leaves, or parts of them; and the share of the last leaves that failed.
        """
        order, left = spread_first(leaves, SAMPLE), torch.ones_like(leaves.margin, dtype=torch.bool)
        neuron = torch.full_like(leaves.margin, -1)  # to split
        start, failed = 0, 0.0
        while start < len(leaves) and failed <= MOST_FAILING and not self.out_of_time():
            some = order[start : start + (BATCH if start else SAMPLE)]
            rows, neuron[some] = self._bounded(leaves.of(some), depth > 0)
            left[some] = rows
            start, failed = start + len(some), float(rows.float().mean())
        rest = leaves.of(left.nonzero().flatten())
        near = (left & (neuron >= 0)).nonzero().flatten()
        if failed > MOST_FAILING or not len(near) or self.out_of_time():
            return rest, failed
        parts, _ = self.run(leaves.of(near).split(neuron[near]).not_empty(self.proving.network.whole), depth - 1)
        if len(parts) > len(near):
            return rest, failed
        return EarlierLeaves.joined(leaves.of((left & (neuron < 0)).nonzero().flatten()), parts), failed

    def _bounded(self, leaves: EarlierLeaves, split: bool) -> tuple[Tensor, Tensor]:
        """Bound leaves by one pass.

        Returns:
            A mask of those that are not proved, and per leaf the ReLU to split: −1 where it is proved, or far from it.
        """
        network, costs = self.proving.network, dict[int, Tensor]()
        batch = leaves.on_condensed(network)
        bounds, _ = self.proving.bounds(batch, costs if split else None)
        left, neuron = ~self.proved(batch, bounds), torch.full_like(leaves.margin, -1)
        rows = (left & (bounds > NEARLY * self.crown[leaves.margin])).nonzero().flatten()
        if costs and len(rows):
            _, number = leaves.numbers_in(network)
            cost = torch.cat([costs[layer.rows.start][:, rows] for layer in network.layers])
            most, best = (cost * (number >= 0)[:, None]).max(0)
            neuron[rows] = torch.where(most > 0, number[best], -1)
        return left, neuron


def spread_first(leaves: EarlierLeaves, sample: int) -> Tensor:
    """The numbers of all leaves; the first ones, ``sample`` at most, are spread over all of them."""
    order, step = torch.arange(len(leaves), device=leaves.margin.device), max(1, -(-len(leaves) // sample))
    return torch.cat([order[::step], order[(order % step) > 0]])
