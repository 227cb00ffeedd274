"""Branch and bound over ReLU signs: each batch holds subproblems of many properties.

A sigmoid or tanh is split as well: its input is held on one side of a point.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

import torch

from steadynet.bounds.optimised import Ascent, Splits
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search import branching
from steadynet.verification.search.attack import descend_on_margins
from steadynet.verification.search.bounding import BoundedBatch, bound
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.leaf_settler import LeafSettler
from steadynet.verification.search.property_batch import SearchState
from steadynet.verification.search.rounding import confirmed
from steadynet.verification.search.subproblem import Queue, Split, Subproblem

BRANCH = Ascent(iterations=5, slope_rate=0.1, multiplier_rate=0.1)
CANDIDATES = 4  # ReLUs per subproblem that are tried on both sides
QUEUE_MEMORY = 3 << 29  # bytes that open subproblems (half-precision slopes, and their splits) may take
LONGER_LOOK = 3.0  # times what a property took before its first look: refining inner bounds takes twice as long
POLISHED, POLISHING_STEPS = 16, 15  # minimisers per batch that are tried after a short descent


def split_relus(state: SearchState, decisions: Decisions, limit: int | None = None) -> SearchState:
    """Split ReLUs until every property is decided, or has had ``limit`` subproblems."""
    search = _ReluSplitting(state, decisions)
    search.run(limit)
    return replace(state, lower=search.lower)


def look_at_relus(state: SearchState, decisions: Decisions, limit: int) -> SearchState:
    """Split the ReLUs of every property a few times, before its inner bounds are refined, which takes long.

    A property has ``limit`` subproblems. It goes on as long as so few are open that its search may soon end, and for at
    most ``LONGER_LOOK`` times the time that it had taken before.
    """
    search, before = _ReluSplitting(state, decisions), list(decisions.time.seconds)

    def goes_on(index: int) -> bool:
        taken = decisions.time.seconds[index] - before[index]
        return search.queue.open_of(index) <= limit and taken < LONGER_LOOK * before[index]

    most = limit
    search.run(most)
    while among := {index for index in search.queue.owners() & decisions.open if goes_on(index)}:
        most += limit
        search.run(most, among)
    return replace(state, lower=search.lower)


class _ReluSplitting:
    """The open subproblems of a group of properties."""

    def __init__(self, state: SearchState, decisions: Decisions) -> None:
        self.state, self.decisions, self.batch = state, decisions, state.batch
        self.lower = state.lower.clone()
        self.settler = LeafSettler(state, decisions)
        layers = [state.network.shapes[position] for position in state.network.graph.activations]
        neurons = sum(torch.Size(shape).numel() for shape in layers)
        self.queue = Queue(QUEUE_MEMORY // (2 * neurons + 4096))
        self.served = decisions.open - state.condensed
        owner, margin = state.margins_of_whole(decisions)
        for pair in zip(owner.tolist(), margin.tolist(), strict=True):
            self.queue.push([Subproblem(*pair, float(self.lower[pair]), slopes=state.slopes.get(pair, {}))])
            if decisions.hints:
                decisions.hints[pair[0]].begin(state.batch.graph, pair[1])

    def run(self, limit: int | None, among: Set[int] | None = None) -> None:
        """Bound and split batch after batch, for all properties or some."""
        while self.decisions.open & self.served and len(self.queue):
            subproblems = self.queue.pop(self.batch.budget.batch, limit, among)
            if not subproblems:
                break
            self._branch(subproblems)
            self.decisions.charge(subproblem.owner for subproblem in subproblems)
            self._close()

    def _close(self) -> None:
        """Decide the properties without an open subproblem, and drop the subproblems of decided properties."""
        waiting = self.queue.owners()
        for index in sorted((self.decisions.open & self.served) - waiting):
            self.settler.conclude(index)
        for index in waiting - self.decisions.open:
            self.queue.drop(index)

    def _branch(self, subproblems: list[Subproblem]) -> None:
        """Bound a batch; split what is not proved."""
        out_of_time = self.decisions.out_of_time([subproblem.owner for subproblem in subproblems])
        for subproblem in subproblems:
            self.decisions.subproblems[subproblem.owner] += 1
        bounded = bound(self.state.network, self.batch.margins, subproblems, BRANCH, out_of_time)
        lower = confirmed(bounded.relaxed, bounded.query, bounded.lower, bounded.value)
        self._try_minimisers(bounded, subproblems)
        if self.decisions.hints:
            splits = split_lists(bounded.splits, len(subproblems))
            for row in (lower > 0).nonzero().flatten().tolist():
                proved = subproblems[row]
                self.decisions.hints[proved.owner].leaf(proved.margin, splits[row], bounded.slopes.of_function(row))
        left = [
            row for row in (lower <= 0).nonzero().flatten().tolist() if subproblems[row].owner in self.decisions.open
        ]
        if out_of_time():
            self.queue.push(subproblems[row] for row in left)
        elif left:
            rows = torch.tensor(left, device=lower.device)
            self._split(bounded.restricted(rows), [subproblems[row] for row in left], out_of_time)

    def _try_minimisers(self, bounded: BoundedBatch, subproblems: list[Subproblem]) -> None:
        """Try the points where bounds are attained as counterexamples; the best ones after a short descent, too."""
        properties, decisions = self.batch.properties, self.decisions
        device = properties.images.device
        owner = torch.tensor([subproblem.owner for subproblem in subproblems], device=device)
        margin = torch.tensor([subproblem.margin for subproblem in subproblems], device=device)
        with torch.no_grad():
            scores = properties.network(bounded.minimiser)
        for row in (scores.argmax(1) != properties.labels[owner]).nonzero().flatten().tolist():
            decisions.refute(subproblems[row].owner, bounded.minimiser[row], DecidedBy.RELU_SPLITTING)
        reached = (scores * self.batch.margins[owner, margin]).sum(1)
        best = reached.topk(min(POLISHED, len(subproblems)), largest=False).indices
        best = best[decisions.still_open(owner[best])]
        if len(best):
            start = bounded.minimiser[best]
            rows = owner[best], margin[best]
            descend_on_margins(self.batch, decisions, *rows, start, POLISHING_STEPS, hopeful=True)

    def _split(self, bounded: BoundedBatch, subproblems: list[Subproblem], out_of_time: Callable[[], bool]) -> None:
        """Queue both sides of the ReLU that each subproblem is split at; settle those without an unstable ReLU."""
        choice = branching.choose(bounded, CANDIDATES, out_of_time)
        splits = split_lists(bounded.splits, len(subproblems))
        for row, subproblem in enumerate(subproblems):
            parent = replace(subproblem, splits=splits[row], slopes=bounded.slopes.of_function(row))
            neuron = choice.neurons[row]
            if neuron is None:
                if not self.settler.settle(parent, out_of_time):
                    self.queue.push([parent])  # out of time: the next charge ends its property
                continue
            for side, sign in enumerate(branching.SIGNS):
                split = Split(neuron.position, neuron.element, sign, at=neuron.at)
                child = parent.child(split, float(choice.sides[side, row]))
                if not choice.sides[side, row] > 0:  # else this side is proved already
                    self.queue.push([child])
                elif self.decisions.hints:
                    self.decisions.hints[child.owner].leaf(child.margin, child.splits, child.slopes)


def split_lists(splits: Splits, rows: int) -> list[tuple[Split, ...]]:
    """The splits of each row, with the multipliers that they ended with."""
    result: list[list[Split]] = [[] for _ in range(rows)]
    for position, (row, element) in splits.index.items():
        numbers = (splits.sign[position], splits.beta[position], splits.at[position])
        columns = (row, element, *numbers)
        for owner, where, sign, beta, at in zip(*(column.tolist() for column in columns), strict=True):
            result[owner].append(Split(position, where, int(sign), beta, at))
    return [tuple(entries) for entries in result]
