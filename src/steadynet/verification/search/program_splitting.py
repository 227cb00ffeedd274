"""Branch and bound on small networks, whose subproblems are bounded by linear programs instead of ascents.

A program finds the best slopes and multipliers at once, where an ascent of a few steps may stay far from them. With few
inputs and ReLUs that hold each other (a logical formula written with ReLUs, for example), the search then needs
thousands of subproblems instead of millions. Each proof is a pass over the whole network with the program's duals, in
which every rounding is counted. What HiGHS says proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from steadynet.bounds.condensed import CondensedNetwork, condense
from steadynet.bounds.condensed_bounds import Columns, SplitColumns
from steadynet.bounds.crown import OutOfTimeError
from steadynet.bounds.precision import in_float64, on_cpu
from steadynet.bounds.whole_pass import whole_query
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.branching import SIGNS
from steadynet.verification.search.condensed_search import search_condensed
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.hints import ProofHints
from steadynet.verification.search.leaf_settler import LeafSettler
from steadynet.verification.search.program_branching import Branching
from steadynet.verification.search.property_batch import SearchState
from steadynet.verification.search.relaxed_program import Duals, Relaxed, RelaxedProgram, Vector, stacked
from steadynet.verification.search.subproblem import Split, Subproblem

MOST_INPUTS = 128
MOST_UNSTABLE = 640
FIRST = 2048  # subproblems that the condensed search bounds before: it is faster where it is strong enough
SHARE = 0.5  # of the time that a property has left, after which it goes back to the condensed search
CHECKED_AT_ONCE = 64  # subproblems that one pass proves
ROOM = 1e-6  # of a ReLU's largest input: below this it lies on its lines as far as HiGHS can tell


def split_by_programs(state: SearchState, decisions: Decisions) -> SearchState:
    """Search the properties with few inputs and few unstable ReLUs, one after the other, each in a share of its time.

    A property that is not decided by then is left to the next stage.
    """
    if not state.batch.budget.programs or state.network.box.lower[0].numel() > MOST_INPUTS:
        return state
    if not state.batch.is_piecewise_linear:  # a sigmoid between two lines is not decided by a sign
        return state
    for index in sorted(decisions.open):
        if state.unstable_relus(index) > MOST_UNSTABLE:
            continue
        if state.batch.budget.condense:
            search_condensed(state, decisions, index, FIRST)
        network = _condensed(state, decisions, index) if index in decisions.open else None
        if network is not None:
            _search(state, decisions, index, network)
        decisions.charge([index])
    return state


def _condensed(state: SearchState, decisions: Decisions, index: int) -> CondensedNetwork | None:
    """The condensed network in float64 on the CPU; None if it has leaky ReLUs, or numbers overflow, or time is over."""
    whole = on_cpu(in_float64(state.network.of_properties(torch.tensor([index], device=state.lower.device))))
    margins = state.batch.margins[index].detach().double().cpu()
    try:
        network = condense(whole, margins, state.batch.budget.memory, decisions.out_of_time([index]))
    except OutOfTimeError:
        return None
    return network if network.is_finite() and not bool(network.floor.any()) else None


def _search(state: SearchState, decisions: Decisions, index: int, network: CondensedNetwork) -> None:
    """Search every open margin of a property; it is proved if none has an open subproblem left."""
    settler = LeafSettler(state, decisions)
    end = (1 - SHARE) * decisions.time.left(index)
    for margin in (state.lower[index] <= 0).nonzero().flatten().tolist():
        tree = _MarginTree(state, decisions, settler, network, (index, margin), end)
        if not tree.search():
            return
    settler.conclude(index)


@dataclass(frozen=True)
class _Node:
    """A subproblem.

    Attributes:
        splits: the held ReLUs, neuron → sign.
        last: the ReLU that was split last, its sign, and the bound of the subproblem before; None for the first one.
        unproved: whether the program called it proved, and the pass did not confirm it. It is split whatever its bound.
    """

    splits: dict[int, int]
    last: tuple[int, int, float] | None = None
    unproved: bool = False


class _MarginTree:
    """The open subproblems of one margin of one property, searched depth first.

    Neighbours differ in few splits, so that each program starts near its solution. ``proposed`` holds subproblems that
    programs call proved, with their duals; one pass checks many of them.
    """

    def __init__(
        self,
        state: SearchState,
        decisions: Decisions,
        settler: LeafSettler,
        network: CondensedNetwork,
        what: tuple[int, int],
        end: float,
    ) -> None:
        self.state, self.decisions, self.settler, self.network = state, decisions, settler, network
        self.index, self.margin = what
        self.end = end  # seconds of the property that are left to the next stage
        self.program = RelaxedProgram(network, self.margin)
        self.branching = Branching(network.neurons)
        self.relaxed = network.whole.relaxed()
        self.room = ROOM * network.bounds.largest()[:, 0].numpy()
        self.rounding = 0.0  # what rounding takes off a bound, as seen in the last proofs
        self.open = [_Node({})]
        if decisions.hints:
            decisions.hints[self.index].begin(state.batch.graph, self.margin)
        self.proposed: list[tuple[_Node, tuple[Duals, ...]]] = []

    def search(self) -> bool:
        """Solve and split until nothing is open; False if the property is decided before, or its share of time over."""
        while self.open or self.proposed:
            if not self._goes_on():
                return False
            if not self.open or len(self.proposed) >= CHECKED_AT_ONCE:
                self._check()
                self.decisions.charge([self.index])
                continue
            node = self.open.pop()
            self.decisions.subproblems[self.index] += 1
            found = self._solve(node.splits)
            if found is None:
                return False
            if node.last is not None:
                neuron, sign, before = node.last
                self.branching.record(neuron, sign, found.lower - before)
            if found.lower > self.rounding and not node.unproved:
                self.proposed.append((node, found.duals))
            else:
                self._split(node, found)
        return self.index in self.decisions.open

    def _goes_on(self) -> bool:
        left = self.decisions.time.left(self.index) - self.decisions.time.pending()
        return self.index in self.decisions.open and left > self.end

    def _solve(self, splits: dict[int, int]) -> Relaxed | None:
        self.program.hold(splits)
        return self.program.minimise(self.decisions.time.left(self.index) - self.decisions.time.pending())

    def _split(self, node: _Node, found: Relaxed) -> None:
        """Push both sides of a ReLU, first the one that the minimiser is not on; settle a subproblem without any."""
        free = np.ones(self.network.neurons, dtype=bool)
        free[list(node.splits)] = False
        if not free.any():
            self._settle(node)
            return
        gap = np.where(free, found.after - np.maximum(found.before, 0.0), 0.0)
        gap[gap <= self.room] = 0.0
        if found.point is not None and not node.unproved and not gap.any() and self._refuted(found.point):
            return
        if not gap.any():  # the relaxation is exact at its minimiser: split the ReLU whose sign is least clear there
            neuron = int(np.where(free, np.abs(found.before), np.inf).argmin())
        else:
            neuron = self.branching.choose(gap)
        nearest = 1 if found.before[neuron] > 0 else -1
        for sign in sorted(SIGNS, key=lambda side: side == nearest):
            self.open.append(_Node({**node.splits, neuron: sign}, (neuron, sign, found.lower)))

    def _refuted(self, point: Vector) -> bool:
        """Replay a point."""
        properties = self.state.batch.properties
        region = properties.region[self.index : self.index + 1]
        image = torch.from_numpy(point).view(region.lower.shape).to(region.lower)
        return self.decisions.refute(self.index, region.project(image)[0], DecidedBy.RELU_SPLITTING)

    def _settle(self, node: _Node) -> None:
        """Settle a subproblem whose ReLUs are all fixed; it stays open if there is no time for it."""
        splits = [
            Split(layer.position, int(layer.elements[neuron - layer.rows.start]), sign)
            for neuron, sign in node.splits.items()
            for layer in self.network.layers
            if layer.rows.start <= neuron < layer.rows.stop
        ]
        leaf = Subproblem(self.index, self.margin, -np.inf, tuple(splits))
        if not self.settler.settle(leaf, lambda: not self._goes_on()):
            self.open.append(node)

    def _check(self) -> None:
        """Prove what was proposed; what a pass does not confirm is open again."""
        rows = [(node, duals) for node, candidates in self.proposed for duals in candidates]
        proved = {id(node) for (node, _), is_proved in zip(rows, self._proved(rows), strict=True) if is_proved}
        self.open += [_Node(node.splits, unproved=True) for node, _ in self.proposed if id(node) not in proved]
        if self.decisions.hints:
            for node, candidates in self.proposed:
                if id(node) in proved:
                    self._note(self.decisions.hints[self.index], node, candidates[0])
        self.proposed = []

    def _note(self, hints: ProofHints, node: _Node, duals: Duals) -> None:
        held = [(neuron, sign, float(duals.multipliers[neuron])) for neuron, sign in node.splits.items()]
        hints.condensed_leaf(self.margin, self.network.layers, held, torch.from_numpy(duals.slopes))

    def _proved(self, rows: list[tuple[_Node, Duals]]) -> list[bool]:
        """Whether a pass over the whole network, with every rounding counted, proves each subproblem."""
        held = [(column, *split) for column, (node, _) in enumerate(rows) for split in node.splits.items()]
        column, neuron, sign = torch.tensor(held, dtype=torch.long, device="cpu").view(-1, 3).t()
        slopes, multipliers = stacked([duals for _, duals in rows])
        splits = SplitColumns(neuron, column, sign.double(), multipliers[neuron, column])
        margin = torch.full((len(rows),), self.margin, device="cpu")
        batch = Columns.of(self.network, margin, slopes, splits)
        margins = self.state.batch.margins[self.index].detach().cpu()
        split, query = whole_query(self.network.layers, batch, self.relaxed, margins)
        with torch.no_grad():
            found = split.lower(query)
        assert found.error is not None
        self.rounding = float(found.error.median().nan_to_num(0.0, 0.0))
        proved: list[bool] = (found.proved > 0).tolist()
        return proved
