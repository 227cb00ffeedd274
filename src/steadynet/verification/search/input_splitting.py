"""Networks with few inputs: the box itself is halved, again and again, and every part is bounded anew.

With many ReLUs behind few inputs this beats splitting ReLUs, as all bounds become tight when the box shrinks. Each
conjunct of a VNN-LIB property is bounded by itself (``conjunctions.py``), and a mixture of them (``mixtures.py``). The
linear bounds of a part clip it before it is halved, and its halves again (``part_bounds.py``, ``box_clipping.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.crown import OutOfTimeError, propagate
from steadynet.graph.maxima import has_maxima
from steadynet.graph.operations import Interval
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.attack import descend_on_margins
from steadynet.verification.search.conjunctions import Conjunctions
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.part_bounds import BoundedParts, Parts, bound_parts
from steadynet.verification.search.property_batch import SearchState

MOST_INPUTS = 16
LEAST_UNSTABLE = 40  # below, splitting ReLUs ends sooner
DEEPEST = 12  # halvings per input: what is still open then touches a tie, and is left to ReLU splitting
SHARE = 0.5  # of a property's time, after which it is left to ReLU splitting, too
AT_ONCE = 512  # parts per batch
EVEN = 0.2  # the share of the mean slope that counts for every input: inner bounds gain from halving any of them
FIRST_ATTACKED, ATTACKED = 64, 1024  # points of the first attack, and the most: around open parts, and anywhere
ANYWHERE = 0.75  # the share of the latter
ATTACK_SHARE, ATTACK_FROM = 0.2, 0.02  # of the time of bounding, in which attacks are made; less these seconds
ATTACK_STEPS, ATTACK_STEP_SIZES = 25, (1 / 8, 1 / 100, 1 / 8, 1 / 8)  # the step sizes take turns


def split_inputs(state: SearchState, decisions: Decisions) -> SearchState:
    """Halve the boxes of the properties that gain from it, until each is decided or given up."""
    if state.network.box.lower[0].numel() > MOST_INPUTS:
        return state
    # maxima and sigmoids are hard for splitting, however few they are
    hard = has_maxima(state.batch.graph) or not state.batch.is_piecewise_linear
    taken = [index for index in sorted(decisions.open) if hard or state.unstable_relus(index) >= LEAST_UNSTABLE]
    if taken:
        InputSplitting(state, decisions, taken).run()
    return state


class InputSplitting:
    """The open parts of a group of properties, on a stack of blocks, so that memory stays small.

    ``open_parts`` counts the parts of each property: at zero it is proved. A property that is given up is not counted
    any more.
    """

    def __init__(self, state: SearchState, decisions: Decisions, taken: list[int]) -> None:
        self.state, self.decisions, self.batch = state, decisions, state.batch
        self.conjunctions = Conjunctions.of(state.batch)
        rows = torch.tensor(taken, dtype=torch.long, device=state.lower.device)
        whole = state.network.of_properties(rows)
        wanted = self.conjunctions.graph.output
        bounds = {position: known for position, known in whole.bounds.items() if position <= wanted}
        self.stack = [Parts(rows, torch.zeros_like(rows), whole.box, bounds, state.lower[rows] <= 0)]
        self.open_parts = dict.fromkeys(taken, 1)
        self.halving_seconds = self.attacking_seconds = self.point_seconds = 0.0
        self.attacks, self.attacked = 0, FIRST_ATTACKED

    def run(self) -> None:
        """Bound and halve block after block, and attack now and then."""
        now = self.batch.budget.now
        while self.stack:
            block = self._next()
            if len(block):
                begun = now()
                self._halve(block)
                self.halving_seconds += now() - begun
                allowed = ATTACK_SHARE * self.halving_seconds - self.attacking_seconds
                if allowed > max(ATTACK_FROM, self.attacked * self.point_seconds):
                    begun = now()
                    self._attack(block)
                    seconds = now() - begun
                    self.attacking_seconds += seconds
                    self.point_seconds = seconds / self.attacked
                    self.attacked = min(2 * self.attacked, ATTACKED)
                self.decisions.charge(block.owner.tolist())
                self._close()

    def _next(self) -> Parts:
        """A full block from the top of the stack, without the parts of decided properties."""
        taken: list[Parts] = []
        while self.stack and sum(map(len, taken)) < AT_ONCE:
            block = self.stack.pop()
            wanted = [owner in self.open_parts for owner in block.owner.tolist()]
            taken.append(block.of(torch.tensor(wanted, dtype=torch.bool, device=block.owner.device)))
        block = Parts.joined(taken)
        if len(block) > AT_ONCE:
            self.stack.append(block.of(slice(AT_ONCE, None)))
        return block.of(slice(AT_ONCE))

    def _close(self) -> None:
        """Prove the properties without an open part; give up those that have had their share of the time."""
        for index, count in list(self.open_parts.items()):
            if index not in self.decisions.open:
                del self.open_parts[index]
            elif not count:
                self.decisions.prove(index, 0.0, DecidedBy.INPUT_SPLITTING)
                del self.open_parts[index]
            elif self.decisions.time.left(index) < (1 - SHARE) * self.decisions.time.timeout:
                del self.open_parts[index]  # given up

    @torch.no_grad()
    def _halve(self, parts: Parts) -> None:
        """Bound some parts, and halve those that are not proved."""
        owners = parts.owner.tolist()
        for owner in owners:
            self.decisions.subproblems[owner] += 1
        try:
            network = self._network(parts, self.decisions.out_of_time(owners))
        except OutOfTimeError:
            self.stack.append(parts)
            return
        bounded, box = bound_parts(parts, network, self.conjunctions), parts.box
        corner = torch.where(bounded.slope.view(box.lower.shape) > 0, box.lower, box.upper)
        self._try(parts.owner, corner)
        self._try(parts.owner, (box.lower + box.upper) / 2)
        bounded = replace(bounded, parts=bounded.clipped(box))
        left = bounded.parts.open.any(1).nonzero().flatten()
        left = left[bounded.worst[left].argsort()]  # the worst first
        self._count(parts.owner, -1)
        if len(left):
            self._push_halves(bounded.of(left))

    def _attack(self, parts: Parts) -> None:
        """Descend from the centres of some parts, and from random points of the whole boxes.

        A counterexample may fill a millionth of the box. Few of many descents end there, so the longer the search
        takes, the more of them it tries.
        """
        rows = torch.randint(len(parts), (self.attacked,), device=parts.owner.device)
        rows = rows[self.decisions.still_open(parts.owner[rows])]
        if not len(rows):
            return
        owner, box, region = parts.owner[rows], parts.box.of(rows), self.batch.properties.region[parts.owner[rows]]
        anywhere = torch.rand(len(rows), device=rows.device) < ANYWHERE
        anywhere = anywhere.view(-1, *[1] * (box.lower.dim() - 1))
        start = torch.where(anywhere, region.sample(), (box.lower + box.upper) / 2)
        margin = torch.multinomial(parts.open[rows].float(), 1)[:, 0]
        step_size = ATTACK_STEP_SIZES[self.attacks % len(ATTACK_STEP_SIZES)]
        self.attacks += 1
        descend_on_margins(self.batch, self.decisions, owner, margin, start, ATTACK_STEPS, step_size)

    def _network(self, parts: Parts, out_of_time: Callable[[], bool]) -> BoundedNetwork:
        """The network up to the conjuncts, over the boxes of some parts."""
        graph, batch = self.conjunctions.graph, self.batch
        return propagate(
            graph, parts.box, batch.budget.memory, out_of_time, known=parts.bounds, execution=batch.execution
        )[0]

    def _count(self, owner: Tensor, change: int) -> None:
        """Count the open parts of these properties up or down, one per entry."""
        for index in owner.tolist():
            if index in self.open_parts:
                self.open_parts[index] += change

    def _try(self, owner: Tensor, points: Tensor) -> None:
        """Try points as counterexamples."""
        properties = self.batch.properties
        wrong = properties.network(points).argmax(1) != properties.labels[owner]
        for row in wrong.nonzero().flatten().tolist():
            self.decisions.refute(int(owner[row]), points[row], DecidedBy.INPUT_SPLITTING)

    def _push_halves(self, bounded: BoundedParts) -> None:
        """Push both halves of each part, cut across the input where the margin is steep and the box is wide."""
        parts, steep = bounded.parts, bounded.steep
        low, high = parts.box.lower.flatten(1), parts.box.upper.flatten(1)
        axis = ((steep + EVEN * steep.mean(1, keepdim=True)) * (high - low)).argmax(1, keepdim=True)
        start, end = low.gather(1, axis), high.gather(1, axis)
        middle = (start + end) / 2
        stuck = ((parts.depth >= DEEPEST * low.shape[1])[:, None] | ~((start < middle) & (middle < end))).flatten()
        for owner in set(parts.owner[stuck].tolist()):
            self.open_parts.pop(owner, None)  # given up
        if self.decisions.hints:
            for owner in set(parts.owner.tolist()):
                rows = (parts.owner == owner) & ~stuck
                self.decisions.hints[owner].cut(low[rows], high[rows], axis[rows, 0], middle[rows, 0])
        shape = parts.box.lower.shape
        first = Interval(parts.box.lower, high.scatter(1, axis, middle).view(shape))
        second = Interval(low.scatter(1, axis, middle).view(shape), parts.box.upper)
        for half in (first, second):
            clipped = bounded.clipped(half)
            left = clipped.open.any(1)
            pushed = replace(clipped, depth=parts.depth + 1).of(left)
            if len(pushed):
                self._count(pushed.owner, 1)
                self.stack.append(pushed)
