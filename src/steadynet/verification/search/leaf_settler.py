"""Subproblems whose ReLUs are all fixed: a linear program decides them, and doubts are kept for the end."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import torch

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.precision import in_float64, on_cpu
from steadynet.verification.properties import DecidedBy, Reason
from steadynet.verification.search.attack import try_nearby
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.leaf import settle
from steadynet.verification.search.property_batch import SearchState
from steadynet.verification.search.subproblem import Subproblem

MOST_DOUBTFUL = 50  # leaves of a property that may be neither proved nor refuted before it is given up


class LeafSettler:
    """Settles the leaves of some properties."""

    def __init__(self, state: SearchState, decisions: Decisions) -> None:
        self.state, self.decisions, self.batch = state, decisions, state.batch
        self.exact: dict[int, BoundedNetwork] = {}  # per property, its network in float64 on the CPU
        self.doubtful: dict[int, list[float]] = defaultdict(list)  # per property, bounds of leaves left in doubt

    def settle(self, leaf: Subproblem, out_of_time: Callable[[], bool]) -> bool:
        """Decide a subproblem whose ReLUs are all fixed by a linear program; False if there was no time for it.

        Where that leaves a doubt, the other subproblems are searched first: one of them may hold a counterexample.
        """
        if leaf.owner not in self.decisions.open:
            return True
        if out_of_time():  # a batch may hold many leaves
            return False
        if not self.batch.is_piecewise_linear:
            return self._doubt(leaf)
        margin = self.batch.margins[leaf.owner, leaf.margin]
        settled = settle(self._exact(leaf.owner), margin, leaf, self.decisions.time.left(leaf.owner))
        if settled is None:
            return False
        if settled.lower > 0 and self.decisions.hints:
            self.decisions.hints[leaf.owner].leaf(leaf.margin, settled.splits, {})
        if not settled.lower > 0 and not try_nearby(self.batch, self.decisions, leaf, settled.point):
            self._doubt(replace(leaf, lower=settled.lower))
        return True

    def _doubt(self, leaf: Subproblem) -> bool:
        """Note a leaf that is neither proved nor refuted. One with a sigmoid or tanh that cannot be split is such."""
        self.doubtful[leaf.owner].append(leaf.lower)
        if len(self.doubtful[leaf.owner]) >= MOST_DOUBTFUL:
            self._give_up(leaf.owner)
        return True

    def conclude(self, index: int) -> None:
        """Decide a property that has no open subproblem any more: it is proved, unless a leaf was left in doubt."""
        if index in self.doubtful:
            self._give_up(index)
        else:
            self.decisions.prove(index, 0.0, DecidedBy.RELU_SPLITTING)

    def _give_up(self, index: int) -> None:
        """Say why leaves are in doubt: without any bound, the rounding errors are infinite."""
        bounded = all(math.isfinite(lower) for lower in self.doubtful[index])
        reason = Reason.ZERO_MARGIN if bounded else Reason.OVERFLOW
        self.decisions.give_up(index, reason, DecidedBy.LINEAR_PROGRAM)

    def _exact(self, owner: int) -> BoundedNetwork:
        if owner not in self.exact:
            rows = torch.tensor([owner], device=self.state.lower.device)
            self.exact[owner] = on_cpu(in_float64(self.state.network.of_properties(rows)))
        return self.exact[owner]
