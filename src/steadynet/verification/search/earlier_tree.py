"""What the leaves of an earlier proof have in common: one bound may settle many of them.

A search splits until it finds good slopes. With the slopes of its leaves, bounds of larger subproblems are often
positive, so that a proof needs fewer of them than its tree has leaves.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from steadynet.bounds.condensed import CondensedNetwork
from steadynet.bounds.condensed_bounds import Columns, SplitColumns


class Node(NamedTuple):
    """The subproblem of the first ``depth`` splits of the leaves ``first``, …, ``last`` − 1, which all have these."""

    first: int
    last: int
    depth: int

    @property
    def is_leaf(self) -> bool:
        """Whether it is one leaf."""
        return self.last - self.first == 1


class EarlierTree:
    """Leaves on a condensed network, neighbours next to each other, and the subproblems that hold several of them.

    Args:
        network: the condensed network.
        leaves: the leaves; the splits of each are in the order of the tree, from its root down.
    """

    def __init__(self, network: CondensedNetwork, leaves: Columns) -> None:
        self.network, self.margin, splits = network, leaves.margin, leaves.splits
        depth = torch.bincount(splits.column, minlength=len(leaves))
        level = torch.arange(len(splits.column), device=depth.device) - (depth.cumsum(0) - depth)[splits.column]
        place = splits.column, level
        shape = len(leaves), int(depth.max()) if len(leaves) else 0
        self.neuron, self.sign = depth.new_full(shape, -1), leaves.slopes.new_zeros(shape)
        beta = leaves.slopes.new_zeros(shape)
        self.neuron[place], self.sign[place], beta[place] = splits.neuron, splits.sign, splits.beta
        self.depth = depth.tolist()
        self.beta_sums = torch.nn.functional.pad(beta.cumsum(0), (0, 0, 1, 0))  # of the leaves before each
        self.slope_sums = torch.nn.functional.pad(leaves.slopes.t().cumsum(0), (0, 0, 1, 0))
        self.common = self._common()

    def _common(self) -> list[int]:
        """Per leaf, how many first splits it shares with the one before it; −1 if that is of another margin."""
        same = (self.neuron[1:] == self.neuron[:-1]) & (self.sign[1:] == self.sign[:-1]) & (self.neuron[1:] >= 0)
        shared = same.to(torch.uint8).cumprod(1).sum(1)
        return [-1, *torch.where(self.margin[1:] == self.margin[:-1], shared, -1).tolist()]

    def roots(self) -> list[Node]:
        """The largest subproblems, one per margin."""
        return self._cut(0, len(self.depth), -1)

    def leaves(self) -> list[Node]:
        """All leaves."""
        return [Node(leaf, leaf + 1, depth) for leaf, depth in enumerate(self.depth)]

    def sides(self, node: Node) -> list[Node]:
        """The parts of a subproblem that its leaves lie in; a leaf is a part of its own."""
        return [node] if node.is_leaf else self._cut(node.first, node.last, node.depth)

    def _cut(self, first: int, last: int, shared: int) -> list[Node]:
        """Nodes between leaves that share no more than so many splits with the one before."""
        starts = [first, *(leaf for leaf in range(first + 1, last) if self.common[leaf] == shared)]
        ends = [*starts[1:], last]
        return [
            Node(start, end, min(self.common[start + 1 : end], default=self.depth[start]))
            for start, end in zip(starts, ends, strict=True)
            if start < end
        ]

    def columns(self, nodes: list[Node]) -> Columns:
        """Subproblems as a batch, with the means of the slopes and multipliers of their leaves."""
        device = self.margin.device
        first, last, depth = torch.tensor(nodes, dtype=torch.long, device=device).view(-1, 3).t()
        count = (last - first).to(self.slope_sums)
        slopes = (self.slope_sums[last] - self.slope_sums[first]) / count[:, None]
        slopes = torch.maximum(slopes.clamp(0.0, 1.0).t(), self.network.floor)
        held = torch.arange(self.neuron.shape[1], device=device) < depth[:, None]
        beta: Tensor = (self.beta_sums[last] - self.beta_sums[first]) / count[:, None]
        column, level = held.nonzero(as_tuple=True)
        place = first[column], level
        splits = SplitColumns(self.neuron[place], column, self.sign[place], beta[column, level].clamp_min(0))
        return Columns.of(self.network, self.margin[first], slopes, splits)
