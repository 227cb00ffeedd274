"""A search that begins with the proof of the same property of another network: before fine-tuning, pruning, rounding.

The parts of that proof are everything, whatever the network is. Each is bounded once on the new network, with the
slopes and multipliers that proved it on the old one. What fails is an open subproblem of the ordinary search.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import CondensedNetwork, condense, condensed_size
from steadynet.bounds.crown import OutOfTimeError
from steadynet.bounds.refinement_by_slopes import refined_by_slopes
from steadynet.graph.maxima import has_maxima
from steadynet.graph.operations import Interval
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.carry_over import CarryOver, EarlierProof
from steadynet.verification.search.condensed_attack import attack_from_random_points
from steadynet.verification.search.condensed_search import MOST_ENTRIES, can_condense
from steadynet.verification.search.condensed_splitting import CondensedSplitting
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.property_batch import SearchState

FIRST_LOOK = 32  # subproblems, after which inner bounds are refined, if the earlier proof did without that


def begin_with_earlier_proofs(state: SearchState, decisions: Decisions) -> SearchState:
    """Try the earlier proofs of the open properties that have one.

    Returns:
        The state. The properties that are still open go on where this stage stopped.
    """
    if not state.batch.carried or not can_condense(state) or has_maxima(state.batch.graph):
        return state
    for index in sorted(decisions.open):
        earlier = state.batch.carried[index].earlier_proof(state.network)
        if earlier is not None:
            state = _Attempt(state, decisions, index, earlier).run()
    return state


class _Attempt:
    """One property and its earlier proof."""

    def __init__(self, state: SearchState, decisions: Decisions, index: int, earlier: EarlierProof) -> None:
        self.state, self.decisions, self.index, self.earlier = state, decisions, index, earlier
        self.carried: CarryOver = state.batch.carried[index]
        self.out_of_time = decisions.out_of_time([index])

    def run(self) -> SearchState:
        """Bound the parts; search on if some are left, to the end if inner bounds are as good as they get."""
        network = self._condensed()
        self.decisions.charge([self.index])
        if network is None or self.index not in self.decisions.open:
            return self.state
        self.carried.parts = self.earlier.groups()
        search = CondensedSplitting(self.state, self.decisions, self.index, network, self.carried)
        search.prove_first_parts()
        least = float(search.proved_lower().min())
        if not search.open:
            if not least > 0:  # no part speaks of some margin: the ordinary search decides
                self.carried.parts = {}
                return self.state
            self.decisions.prove(self.index, least, DecidedBy.EARLIER_PROOF)
        elif not self._refuted(search):
            search.run(None if self.earlier.refined else FIRST_LOOK)
        self.decisions.charge([self.index])
        return self._left(search, network) if self.index in self.decisions.open else self.state

    def _condensed(self) -> CondensedNetwork | None:
        """The condensed network, with inner bounds from the slopes of the earlier proof; None if it would be large."""
        state, rows = self.state, torch.tensor([self.index], device=self.state.lower.device)
        whole = state.network.of_properties(rows)
        if condensed_size(whole) > MOST_ENTRIES:
            return None
        if self.earlier.refined:
            whole = self._refined(whole)
        try:
            network = condense(whole, state.batch.margins[self.index], state.batch.budget.memory, self.out_of_time)
        except OutOfTimeError:
            return None
        return network if network.is_finite() else None

    def _refined(self, whole: BoundedNetwork) -> BoundedNetwork:
        layers, hints, index = self.earlier.layers, self.decisions.hints, self.index
        notes = [partial(hints[index].refinement, layers)] if hints else []
        whole = refined_by_slopes(whole, layers, self.earlier.refined, self.out_of_time, *notes)
        if hints:
            for margin in range(self.state.lower.shape[1]):
                hints[index].go_on(margin)  # so that a proof takes the refined bounds
        bounds = {}
        for position, better in whole.bounds.items():
            lower, upper = (side.clone() for side in self.state.network.bounds[position])
            lower[index], upper[index] = better.lower[0], better.upper[0]
            bounds[position] = Interval(lower, upper)
        self.state = replace(self.state, network=replace(self.state.network, bounds=bounds))
        return whole

    def _refuted(self, search: CondensedSplitting) -> bool:
        """A short attack: a property that was proved before may have a counterexample now."""
        margins = torch.tensor(sorted(search.open_margins()), device=self.state.lower.device)
        steps, restarts = self.state.batch.budget.attack_steps // 2, min(1, self.state.batch.budget.restarts)
        return attack_from_random_points(search.network, self.decisions, self.index, margins, restarts, steps)

    def _left(self, search: CondensedSplitting, network: CondensedNetwork) -> SearchState:
        """The state in which later stages go on with the parts that are open; with all, if programs settled some."""
        lower = self.state.lower.clone()
        lower[self.index] = search.proved_lower()
        if not search.leaves:  # which may have left doubts
            self.carried.go_on_with(network, search.open_parts())
        condensed = self.state.condensed | {self.index}
        return replace(self.state, lower=lower, condensed=condensed)
