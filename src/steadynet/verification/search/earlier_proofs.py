"""A search that begins with the proof of the same property of another network: before fine-tuning, pruning, rounding.

The leaves of that proof are everything, whatever the network is. They are bounded at once by passes over the condensed
form of the new network, with the slopes and multipliers that proved them on the old one. Those that fail are repaired
by a short ascent, and bounds of inner neurons are refined first if many fail. What still fails is an open subproblem
of the ordinary search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import CondensedNetwork, condense_each, condensed_sizes
from steadynet.bounds.condensed_bounds import Columns, ascend, into_range
from steadynet.bounds.condensed_proof import CondensedProof, tightened
from steadynet.bounds.condensed_refinement import no_note, refined_by_condensed
from steadynet.bounds.condensed_repair import repair
from steadynet.bounds.condensed_substitution import condensed_further
from steadynet.bounds.crown import OutOfTimeError
from steadynet.bounds.optimised import Ascent
from steadynet.bounds.refinement_by_slopes import refined_by_slopes
from steadynet.bounds.whole_pass import WholePass
from steadynet.graph.maxima import has_maxima
from steadynet.graph.operations import Interval
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.carry_over import CarryOver, Neurons, PartGroup
from steadynet.verification.search.condensed_attack import attack_from_random_points
from steadynet.verification.search.condensed_part import Part
from steadynet.verification.search.condensed_search import MOST_ENTRIES, can_condense
from steadynet.verification.search.condensed_splitting import CondensedSplitting
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.earlier_leaves import EarlierLeaves, EarlierProof, held_of, parts_of
from steadynet.verification.search.earlier_together import prove_together
from steadynet.verification.search.earlier_trial import BATCH, DEPTH, LeafTrial, spread_first
from steadynet.verification.search.property_batch import SearchState
from steadynet.verification.search.root_bounds import REFINEMENT

FIRST_LOOK = 32  # subproblems, after which inner bounds are refined, if the earlier proof did without that
AT_ONCE = 1 << 21  # entries of the matrices of the properties that are condensed together: few fill the cache
MANY = 200  # leaves that are likely to fail, from which on it pays to refine inner bounds
FEW = 64  # subproblems, up to which nothing is attacked before they are searched
ROOM = 1.1  # times what rounding took off the last bounds
REPAIR = 8  # steps
TEACHERS = 48  # leaves that are repaired first, if many are to be repaired: where they move, the others begin
FARTHER = 1.5  # times as far as the teachers moved on average
CAREFUL_REPAIR = Ascent(iterations=8, slope_rate=0.05, multiplier_rate=0.1)  # of those that are left, if few are


def begin_with_earlier_proofs(state: SearchState, decisions: Decisions) -> SearchState:
    """Try the earlier proofs of the open properties that have one.

    Returns:
        The state. The properties that are still open go on where this stage stopped.
    """
    if not state.batch.carried or not can_condense(state) or has_maxima(state.batch.graph):
        return state
    proofs: dict[int, EarlierProof] = {}
    for index in sorted(decisions.open):
        earlier = state.batch.carried[index].earlier_proof(state.network)
        if earlier is not None:
            proofs[index] = earlier
        decisions.charge([index])
    state, proofs = prove_together(state, decisions, proofs)
    for group in _groups(state, proofs):
        condensed = _condensed(state, decisions, group)
        for index in group:
            if index in condensed and index in decisions.open:
                attempt = _Attempt(state, decisions, index, proofs[index], condensed.pop(index))
                attempt.run()
                state = attempt.state
                decisions.charge([index])
    return state


def _groups(state: SearchState, proofs: Mapping[int, EarlierProof]) -> list[list[int]]:
    """The properties whose condensed networks are small, in groups that are condensed together."""
    sizes, groups, room = condensed_sizes(state.network), [list[int]()], AT_ONCE
    for index in proofs:
        if sizes[index] <= MOST_ENTRIES:
            if sizes[index] > room:
                groups, room = [*groups, []], AT_ONCE
            groups[-1].append(index)
            room -= sizes[index]
    return groups


def _condensed(state: SearchState, decisions: Decisions, wanted: list[int]) -> dict[int, CondensedNetwork]:
    """The condensed networks of some properties, without those where something overflows, or whose time is over."""
    batch, device = state.batch, state.lower.device
    while wanted := [index for index in wanted if index in decisions.open]:
        wholes = [state.network.of_properties(torch.tensor([index], device=device)) for index in wanted]
        rows, out_of_time = torch.tensor(wanted, device=device), decisions.out_of_time(wanted)
        together = state.network.of_properties(rows)
        try:
            found = condense_each(wholes, together, batch.margins[rows], batch.budget.memory, out_of_time, proofs=True)
        except OutOfTimeError:
            decisions.charge(wanted)  # ends those whose time is over
        else:
            decisions.charge(wanted)
            return {index: network for index, network in zip(wanted, found, strict=True) if network.is_finite()}
    return {}


class _Attempt:
    """One property and its earlier proof."""

    def __init__(
        self, state: SearchState, decisions: Decisions, index: int, earlier: EarlierProof, network: CondensedNetwork
    ) -> None:
        self.state, self.decisions, self.index, self.earlier = state, decisions, index, earlier
        self.whole, self.proving = network.whole, CondensedProof(network)
        self.carried: CarryOver = state.batch.carried[index]
        self.out_of_time = decisions.out_of_time([index])
        self._passes: WholePass | None = None
        self.least = dict(earlier.least)  # per margin, the least bound of its leaves that are proved
        self.is_refined = bool(earlier.refined)

    def run(self) -> None:
        """Bound the leaves; repair what fails; search on with what is left."""
        open_margins = self.state.lower[self.index] <= 0
        if self.decisions.hints:
            for margin in open_margins.nonzero().flatten().tolist():
                self.decisions.hints[self.index].begin(self.state.batch.graph, margin)
        if self.is_refined and not self.earlier.is_tried:
            self._refine_by_slopes()
        left, failed = self._tried(self.earlier.leaves.of_margins(open_margins).not_empty(self.whole))
        if not self._concluded(left.margin):
            self._repair(left, failed * len(left) > MANY)

    def _refine_by_slopes(self) -> None:
        """Bounds of inner neurons from the slopes of the earlier proof."""
        hints, layers = self.decisions.hints, self.earlier.layers
        note = partial(hints[self.index].refinement, layers) if hints else no_note
        self._take(refined_by_slopes(self.proving, layers, self.earlier.refined, self.out_of_time, note))

    def _take(self, whole: BoundedNetwork) -> None:
        """Go on with better bounds of inner neurons."""
        self.whole = whole
        if self.proving.network.whole is not whole:
            self.proving.network = tightened(self.proving.network, whole)
        if self.decisions.hints:
            for margin in range(self.state.lower.shape[1]):
                self.decisions.hints[self.index].go_on(margin)  # so that a proof takes the refined bounds

    def _tried(self, leaves: EarlierLeaves) -> tuple[EarlierLeaves, float]:
        """Bound leaves as they are, and split those that are nearly proved.

        Returns:
            What is not proved, and the share of the last leaves that failed.
        """

        def proved(batch: Columns, bounds: Tensor) -> Tensor:
            self._count(batch)
            return self._noted(batch, bounds)

        trial = LeafTrial(self.proving, self.state.lower[self.index], proved, self.out_of_time)
        return trial.run(leaves, 0 if self.decisions.hints else DEPTH)  # who writes a proof wants the leaves

    def _proved(self, batch: Columns) -> Tensor:
        """Note what passes prove of some subproblems; a mask of those that are proved."""
        self._count(batch)
        bounds, doubtful = self.proving.bounds(batch)
        rows = doubtful.nonzero().flatten()
        if len(rows):
            bounds[rows] = self._on_whole(batch.restricted(rows))
        return self._noted(batch, bounds)

    def _on_whole(self, batch: Columns) -> Tensor:
        """Bounds by a pass over the whole network."""
        if self._passes is None or self._passes.whole is not self.whole:
            self._passes = WholePass(self.whole, self.state.batch.margins[self.index])
        return self._passes.bounds(self.proving.network.layers, batch)

    def _count(self, batch: Columns) -> None:
        self.decisions.subproblems[self.index] += len(batch.splits.column.unique())

    def _noted(self, batch: Columns, bounds: Tensor) -> Tensor:
        """Note the bounds of some subproblems; a mask of those that are proved by them."""
        proved = bounds > 0
        for margin, bound in zip(batch.margin[proved].tolist(), bounds[proved].tolist(), strict=True):
            self.least[margin] = min(self.least.get(margin, bound), bound)
        if self.decisions.hints:
            some, hints = batch.restricted(proved.nonzero().flatten()), self.decisions.hints[self.index]
            slopes = some.slopes.t().half()
            for row, (margin, held) in enumerate(zip(some.margin.tolist(), held_of(some), strict=True)):
                hints.condensed_leaf(margin, self.proving.network.layers, held, slopes[row])
        return proved

    def _concluded(self, left: Tensor) -> bool:
        """Note the margins whose leaves are all proved; (n,) are the margins of the others. Whether nothing is open."""
        lower, still_open = self.state.lower.clone(), set(left.tolist())
        for margin, bound in self.least.items():
            if margin not in still_open:
                lower[self.index, margin] = max(float(lower[self.index, margin]), bound)
        self.state = replace(self.state, lower=lower)
        if bool((lower[self.index] > 0).all()):
            self.decisions.prove(self.index, float(lower[self.index].min()), DecidedBy.EARLIER_PROOF)
        return self.index not in self.decisions.open

    def _repair(self, leaves: EarlierLeaves, refine: bool) -> None:
        """Raise the bounds of leaves and prove them; search on with those that are left."""
        if refine:
            self._refine_further()
            leaves, _ = self._tried(leaves.not_empty(self.whole))  # most of them are proved now
        order, network, parts = spread_first(leaves, TEACHERS), self.proving.network, list[Part]()
        first = TEACHERS if len(leaves) > MANY else 0
        moved = self._repair_teachers(leaves.of(order[:first]).on_condensed(network), parts) if first else None
        for rows in order[first:].split(BATCH):
            columns = leaves.of(rows).on_condensed(network)
            if moved is not None:
                columns.slopes.add_(moved * (columns.upper_shift > 0))
                into_range(columns.slopes, network)
            parts += self._not_repaired(columns)
        if not self._concluded(torch.tensor([part.margin for part in parts])):
            self._search(parts)

    def _repair_teachers(self, columns: Columns, parts: list[Part]) -> Tensor:
        """Repair some leaves, add what is left of them to ``parts``, and return how to move the others, (neurons, 1).

        What has changed is the network, for all leaves alike, so much of what one leaf needs, the others need, too.
        """
        before = columns.slopes.clone()
        parts += self._not_repaired(columns)
        return FARTHER * (columns.slopes - before).mean(1, keepdim=True)

    def _not_repaired(self, columns: Columns) -> list[Part]:
        """Raise the bounds of some subproblems and prove them; those that are not proved."""
        network, enough = self.proving.network, ROOM * self.proving.rounding  # a pass hardly fails beyond that
        bounds = repair(network, columns, REPAIR, self.out_of_time, enough)
        low = (bounds <= enough).nonzero().flatten()
        if 0 < len(low) <= FEW:
            few = columns.restricted(low)
            bounds[low] = ascend(network, few, CAREFUL_REPAIR, self.out_of_time, enough).lower
            columns.take(low, few)
        still_open = torch.ones(len(columns), dtype=torch.bool, device=bounds.device)
        likely = self.proving.promising(bounds).nonzero().flatten()
        if len(likely) and not self.out_of_time():
            still_open[likely] = ~self._proved(columns.restricted(likely))
        left = still_open.nonzero().flatten()
        return parts_of(columns.restricted(left), bounds[left])

    def _refine_further(self) -> None:
        """Tighter bounds of inner neurons: of the last layer only, if those of the others have been refined."""
        hints, network = self.decisions.hints, self.proving.network
        note = partial(hints[self.index].refinement, network.layers) if hints else no_note
        first = len(network.layers) - 1 if self.is_refined else 1
        self._take(refined_by_condensed(network, REFINEMENT, self.out_of_time, note, first))
        self.is_refined = True

    def _search(self, parts: list[Part]) -> None:
        """The ordinary search of what is left, to the end if inner bounds are as good as they get."""
        self._keep_bounds()
        layers = tuple(Neurons(layer.position, layer.elements) for layer in self.proving.network.layers)
        network = condensed_further(self.proving.network, self.whole)
        parts, _ = PartGroup(layers, tuple(parts)).translated(network)
        self.carried.go_on_with(network, parts)
        search = CondensedSplitting(self.state, self.decisions, self.index, network, self.carried, parts)
        search.least.update(self.least)
        search.batches += 1  # what comes now is no root
        if len(parts) <= FEW or not self._refuted(search):
            search.run(None if self.is_refined else FIRST_LOOK)
        self.decisions.charge([self.index])
        if self.index in self.decisions.open:
            lower = self.state.lower.clone()
            lower[self.index] = search.proved_lower()
            if not search.leaves:  # which may have left doubts
                self.carried.go_on_with(network, search.open_parts())
            self.state = replace(self.state, lower=lower, condensed=self.state.condensed | {self.index})

    def _keep_bounds(self) -> None:
        """Keep the bounds of inner neurons for whatever comes next."""
        bounds = {}
        for position, better in self.whole.bounds.items():
            lower, upper = (side.clone() for side in self.state.network.bounds[position])
            lower[self.index], upper[self.index] = better.lower[0], better.upper[0]
            bounds[position] = Interval(lower, upper)
        self.state = replace(self.state, network=replace(self.state.network, bounds=bounds))

    def _refuted(self, search: CondensedSplitting) -> bool:
        """A short attack: a property that was proved before may have a counterexample now."""
        margins = torch.tensor(sorted(search.open_margins()), device=self.state.lower.device)
        steps, restarts = self.state.batch.budget.attack_steps // 2, min(1, self.state.batch.budget.restarts)
        return attack_from_random_points(search.network, self.decisions, self.index, margins, restarts, steps)
