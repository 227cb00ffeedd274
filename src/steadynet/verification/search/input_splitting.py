"""Networks with few inputs: the box itself is halved, again and again, and every part is bounded anew.

With many ReLUs behind few inputs this beats splitting ReLUs, as all bounds become tight when the box shrinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork, BoundQuery, Trail
from steadynet.bounds.crown import OutOfTimeError
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.graph.maxima import has_maxima
from steadynet.graph.operations import Interval
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.property_batch import SearchState
from steadynet.verification.search.rounding import confirmed

MOST_INPUTS = 16
LEAST_UNSTABLE = 40  # below, splitting ReLUs ends sooner
DEEPEST = 12  # halvings per input: what is still open then touches a tie, and is left to ReLU splitting
SHARE = 0.5  # of a property's time, after which it is left to ReLU splitting, too
AT_ONCE = 512  # parts per batch


@dataclass(frozen=True)
class Parts:
    """Some parts of properties' boxes, one row per part. Is every margin positive on each?

    Attributes:
        owner: (n,), the property of each part.
        depth: (n,), how often the box was halved.
        box: the parts.
        bounds: bounds of the ReLU inputs that hold on the part that each part was cut from.
    """

    owner: Tensor
    depth: Tensor
    box: Interval
    bounds: Mapping[int, Interval]

    def __len__(self) -> int:
        return len(self.owner)

    def of(self, rows: Tensor | slice) -> Parts:
        """Some of the parts."""
        bounds = {position: known.of(rows) for position, known in self.bounds.items()}
        return Parts(self.owner[rows], self.depth[rows], self.box.of(rows), bounds)


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
        rows = torch.tensor(taken, dtype=torch.long, device=state.lower.device)
        whole = state.network.of_properties(rows)
        self.stack = [Parts(rows, torch.zeros_like(rows), whole.box, whole.bounds)]
        self.open_parts = dict.fromkeys(taken, 1)

    def run(self) -> None:
        """Bound and halve block after block."""
        while self.stack:
            block = self._next()
            if len(block):
                self._halve(block)
                self.decisions.charge(block.owner.tolist())
                self._close()

    def _next(self) -> Parts:
        """A full block from the top of the stack, without the parts of decided properties."""
        taken: list[Parts] = []
        while self.stack and sum(map(len, taken)) < AT_ONCE:
            block = self.stack.pop()
            wanted = [owner in self.open_parts for owner in block.owner.tolist()]
            taken.append(block.of(torch.tensor(wanted, device=block.owner.device)))
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

    def _halve(self, parts: Parts) -> None:
        """Bound some parts, and halve those that are not proved."""
        owners = parts.owner.tolist()
        for owner in owners:
            self.decisions.subproblems[owner] += 1
        out_of_time = self.decisions.out_of_time(owners)
        try:
            with torch.no_grad():
                network, _ = self.batch.bounded(parts.box, out_of_time, parts.bounds)
                lower, steep = self._bound(network, parts.owner)
        except OutOfTimeError:
            self.stack.append(parts)
            return
        corner = torch.where(steep > 0, parts.box.lower, parts.box.upper)
        self._try(parts.owner, corner)
        self._try(parts.owner, (parts.box.lower + parts.box.upper) / 2)
        left = (lower <= 0).nonzero().flatten()
        left = left[lower[left].argsort()]  # the worst first
        for owner in parts.owner[lower > 0].tolist():
            self.open_parts[owner] -= 1
        if len(left):
            open_parts = Parts(parts.owner, parts.depth, parts.box, network.bounds).of(left)
            self._push_halves(open_parts, steep[left].abs().flatten(1))

    def _bound(self, network: BoundedNetwork, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Per part the bound of its smallest margin (n,), and the slope of that margin in the input (n, \\*image)."""
        known = self.state.lower
        rows, margin = (known[owner] <= 0).nonzero(as_tuple=True)  # margins proved on the whole box are done
        functions = LinearFunctions(self.batch.margins[owner[rows], margin])
        query, relaxed, trail = BoundQuery(network.output, functions, rows), network.relaxed(), Trail()
        bound = relaxed.lower(query, trail)
        found = confirmed(relaxed, query, bound.proved, bound.value)
        table = known.new_full((len(owner), known.shape[1]), torch.inf)
        table[rows, margin] = found
        number = torch.zeros_like(table, dtype=torch.long)
        number[rows, margin] = torch.arange(len(rows), device=rows.device)
        lower, worst = table.min(1)
        if trail.on_input is None:
            return lower, torch.zeros_like(network.box.lower)
        return lower, trail.on_input[number.gather(1, worst[:, None])[:, 0]]

    def _try(self, owner: Tensor, points: Tensor) -> None:
        """Try points as counterexamples."""
        properties = self.batch.properties
        with torch.no_grad():
            wrong = properties.network(points).argmax(1) != properties.labels[owner]
        for row in wrong.nonzero().flatten().tolist():
            self.decisions.refute(int(owner[row]), points[row], DecidedBy.INPUT_SPLITTING)

    def _push_halves(self, parts: Parts, slope: Tensor) -> None:
        """Push both halves of each part, cut across the input where the margin is steep and the box is wide."""
        low, high = parts.box.lower.flatten(1), parts.box.upper.flatten(1)
        axis = ((slope + slope.mean(1, keepdim=True)) * (high - low)).argmax(1, keepdim=True)
        start, end = low.gather(1, axis), high.gather(1, axis)
        middle = (start + end) / 2
        stuck = ((parts.depth >= DEEPEST * low.shape[1])[:, None] | ~((start < middle) & (middle < end))).flatten()
        for owner in set(parts.owner[stuck].tolist()):
            self.open_parts.pop(owner, None)  # given up
        for owner in parts.owner.tolist():
            if owner in self.open_parts:
                self.open_parts[owner] += 1  # two for one
        shape = parts.box.lower.shape
        first = Interval(parts.box.lower, high.scatter(1, axis, middle).view(shape))
        second = Interval(low.scatter(1, axis, middle).view(shape), parts.box.upper)
        for half in (first, second):
            self.stack.append(Parts(parts.owner, parts.depth + 1, half, parts.bounds))


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
    )
