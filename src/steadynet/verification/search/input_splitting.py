"""Networks with few inputs: the box itself is halved, again and again, and every part is bounded anew.

With many ReLUs behind few inputs this beats splitting ReLUs, as all bounds become tight when the box shrinks. Each
conjunct of a VNN-LIB property is bounded by itself (``conjunctions.py``). The linear bounds of a part clip it before it
is halved, and its halves again (``box_clipping.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork, BoundQuery, Trail
from steadynet.bounds.crown import OutOfTimeError, propagate
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.graph.maxima import has_maxima
from steadynet.graph.operations import Interval
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.attack import descend_on_margins
from steadynet.verification.search.box_clipping import LinearBounds, clip
from steadynet.verification.search.conjunctions import Conjunctions
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.property_batch import SearchState
from steadynet.verification.search.rounding import confirmed

MOST_INPUTS = 16
LEAST_UNSTABLE = 40  # below, splitting ReLUs ends sooner
DEEPEST = 12  # halvings per input: what is still open then touches a tie, and is left to ReLU splitting
SHARE = 0.5  # of a property's time, after which it is left to ReLU splitting, too
AT_ONCE = 512  # parts per batch
EVEN = 0.2  # the share of the mean slope that counts for every input: inner bounds gain from halving any of them
CLIPPING = True  # whether linear bounds clip the boxes
ATTACKED = 1024  # points per attack: some around open parts, the others anywhere
ANYWHERE = 0.75  # the share of the latter
ATTACK_SHARE, ATTACK_FROM = 0.2, 0.02  # of the time of bounding, in which attacks are made; less these seconds
ATTACK_STEPS, ATTACK_STEP_SIZES = 25, (1 / 8, 1 / 100, 1 / 8, 1 / 8)  # the step sizes take turns


@dataclass(frozen=True)
class Parts:
    """Some parts of properties' boxes, one row per part. Is every margin positive on each?

    Attributes:
        owner: (n,), the property of each part.
        depth: (n,), how often the box was halved.
        box: the parts.
        bounds: bounds of the ReLU inputs that hold on the part that each part was cut from.
        open: (n, margins), the margins that are not proved on the part that each part was cut from.
    """

    owner: Tensor
    depth: Tensor
    box: Interval
    bounds: Mapping[int, Interval]
    open: Tensor

    def __len__(self) -> int:
        return len(self.owner)

    def of(self, rows: Tensor | slice) -> Parts:
        """Some of the parts."""
        bounds = {position: known.of(rows) for position, known in self.bounds.items()}
        return Parts(self.owner[rows], self.depth[rows], self.box.of(rows), bounds, self.open[rows])


@dataclass(frozen=True)
class BoundedParts:
    """Parts after bounding.

    Attributes:
        parts: the parts, with their own bounds, and the margins that are not proved on them.
        linear: linear lower bounds of the conjuncts of these margins.
        worst: (n,), the smallest bound of a margin, where the margin's bound is that of its best conjunct.
        slope: (n, inputs), the coefficients of that conjunct's linear bound.
    """

    parts: Parts
    linear: LinearBounds
    worst: Tensor
    slope: Tensor

    def of(self, rows: Tensor) -> BoundedParts:
        """Some of the parts."""
        return BoundedParts(self.parts.of(rows), self.linear.of(rows), self.worst[rows], self.slope[rows])

    def clipped(self, box: Interval) -> Parts:
        """The parts with other boxes inside their own, clipped by the linear bounds."""
        parts = self.parts
        if not CLIPPING:
            return replace(parts, box=box)
        shape = box.lower.shape
        found = clip(box.lower.flatten(1), box.upper.flatten(1), parts.open, self.linear)
        return replace(parts, box=Interval(found.lower.view(shape), found.upper.view(shape)), open=found.open)


def split_inputs(state: SearchState, decisions: Decisions) -> SearchState:
    """Halve the boxes of the properties that gain from it, until each is decided or given up."""
    if state.network.box.lower[0].numel() > MOST_INPUTS:
        return state
    maxima = has_maxima(state.batch.graph)  # they are hard for ReLU splitting, however few they are
    taken = [index for index in sorted(decisions.open) if maxima or state.unstable_relus(index) >= LEAST_UNSTABLE]
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
        self.halving_seconds = self.attacking_seconds = 0.0
        self.attacks = 0

    def run(self) -> None:
        """Bound and halve block after block, and attack now and then."""
        now = self.batch.budget.now
        while self.stack:
            block = self._next()
            if len(block):
                begun = now()
                self._halve(block)
                self.halving_seconds += now() - begun
                if ATTACK_SHARE * self.halving_seconds > self.attacking_seconds + ATTACK_FROM:
                    begun = now()
                    self._attack(block)
                    self.attacking_seconds += now() - begun
                self.decisions.charge(block.owner.tolist())
                self._close()

    def _next(self) -> Parts:
        """A full block from the top of the stack, without the parts of decided properties."""
        taken: list[Parts] = []
        while self.stack and sum(map(len, taken)) < AT_ONCE:
            block = self.stack.pop()
            wanted = [owner in self.open_parts for owner in block.owner.tolist()]
            taken.append(block.of(torch.tensor(wanted, dtype=torch.bool, device=block.owner.device)))
        block = _joined(taken)
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
            bounded = self._bound(parts, self.decisions.out_of_time(owners))
        except OutOfTimeError:
            self.stack.append(parts)
            return
        box = parts.box
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
        rows = torch.randint(len(parts), (ATTACKED,), device=parts.owner.device)
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

    def _bound(self, parts: Parts, out_of_time: Callable[[], bool]) -> BoundedParts:
        """Bound every conjunct of the open margins of each part."""
        network = self._network(parts, out_of_time)
        part, margin, conjunct = (parts.open[:, :, None] & self.conjunctions.used).nonzero(as_tuple=True)
        functions = LinearFunctions(self.conjunctions.functions[parts.owner[part], margin, conjunct])
        query, relaxed, trail = BoundQuery(network.output, functions, part), network.relaxed(), Trail()
        bound = relaxed.lower(query, trail)
        found = confirmed(relaxed, query, bound.proved, bound.value)
        shape = (len(parts), *self.conjunctions.used.shape)
        table = found.new_full(shape, -torch.inf).index_put((part, margin, conjunct), found)
        best, which = table.max(2)  # a margin is at least each of its conjuncts
        worst, margin_of = best.masked_fill(~parts.open, torch.inf).min(1)
        inputs = parts.box.lower[0].numel()
        slope = parts.box.lower.new_zeros(*shape, inputs)
        constant = found.new_full(shape, -torch.inf)
        if trail.on_input is not None:
            assert trail.constant is not None
            assert bound.error is not None
            slope[part, margin, conjunct] = trail.on_input.flatten(1)
            constant[part, margin, conjunct] = trail.constant - bound.error
        every = torch.arange(len(parts), device=part.device)
        return BoundedParts(
            replace(parts, bounds=network.bounds, open=parts.open & ~(best > 0)),
            LinearBounds.on(parts.box, slope, constant),
            worst,
            slope[every, margin_of, which[every, margin_of]],
        )

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
        parts, slope = bounded.parts, bounded.slope.abs()
        low, high = parts.box.lower.flatten(1), parts.box.upper.flatten(1)
        axis = ((slope + EVEN * slope.mean(1, keepdim=True)) * (high - low)).argmax(1, keepdim=True)
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


def _joined(blocks: list[Parts]) -> Parts:
    if len(blocks) == 1:
        return blocks[0]

    def join(intervals: list[Interval]) -> Interval:
        return Interval(*(torch.cat(sides) for sides in zip(*intervals, strict=True)))

    return Parts(
        torch.cat([block.owner for block in blocks]),
        torch.cat([block.depth for block in blocks]),
        join([block.box for block in blocks]),
        {position: join([block.bounds[position] for block in blocks]) for position in blocks[0].bounds},
        torch.cat([block.open for block in blocks]),
    )
