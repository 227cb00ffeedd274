"""Networks with few inputs: the box itself is halved, again and again, and every part bounded anew.

With many ReLUs behind few inputs this beats splitting ReLUs: all bounds become tight as the box shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.bounds.backward import Backward, Rows, Trail
from steadynet.bounds.crown import OutOfTimeError, propagate
from steadynet.graph.operations import Interval
from steadynet.verification.search.property_batch import Root
from steadynet.verification.search.rounding import certain, in_float64, margin_rounding, widened

MOST_INPUTS = 16
LEAST_UNSTABLE = 40  # below, splitting ReLUs ends sooner
DEEPEST = 12  # halvings an input: what is still open then touches a tie, and is left to the ReLUs
SHARE = 0.5  # of a property's time, after which it is left to the ReLUs, too
AT_ONCE = 512


@dataclass(frozen=True)
class Parts:
    """Some parts of properties' boxes: are all margins positive on each? Everything has a row a part.

    ``bounds`` of the rectifiers' inputs hold on the box that a part was cut from.
    """

    owner: Tensor
    depth: Tensor
    box: Interval
    bounds: dict[int, Interval]

    def __len__(self) -> int:
        return len(self.owner)

    def of(self, rows: Tensor | slice) -> Parts:
        """Some of them."""
        return Parts(self.owner[rows], self.depth[rows], _rows(self.box, rows), _all_rows(self.bounds, rows))


class Boxes:
    """The open parts of a group of properties, for those that gain from halving: a stack of blocks, so memory is small.

    ``open_parts`` counts each property's; at zero it is proved. One that is given up is counted no more.
    """

    def __init__(self, root: Root) -> None:
        self.root, self.ledger = root, root.ledger
        few = root.backward.box.lower[0].numel() <= MOST_INPUTS
        taken = [index for index in sorted(self.ledger.open) if few and root.unstable(index) >= LEAST_UNSTABLE]
        rows = torch.tensor(taken, dtype=torch.long, device=root.lower.device)
        whole = Parts(
            rows, torch.zeros_like(rows), _rows(root.backward.box, rows), _all_rows(root.backward.bounds, rows)
        )
        self.stack = [whole] if taken else []
        self.open_parts = dict.fromkeys(taken, 1)

    def search(self) -> None:
        """Until every property that was taken up is decided, or given up."""
        while self.stack:
            block = self._next()
            if len(block):
                self._halve(block)
                self.ledger.charge(block.owner.tolist())
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
        """A property with no open part is proved; one that is decided has none any more."""
        for index, count in list(self.open_parts.items()):
            if index not in self.ledger.open:
                del self.open_parts[index]
            elif not count:
                self.ledger.prove(index, 0.0, "halved boxes")
                del self.open_parts[index]
            elif self.ledger.clock.seconds[index] > SHARE * self.ledger.clock.timeout:
                del self.open_parts[index]  # given up

    def _halve(self, parts: Parts) -> None:
        owners = parts.owner.tolist()
        for owner in owners:
            self.ledger.subproblems[owner] += 1
        out_of_time = self.ledger.out_of_time(owners)
        try:
            with torch.no_grad():
                found, _ = propagate(
                    self.root.graph, parts.box, self.root.budget.memory, out_of_time, known=parts.bounds
                )
                backward = widened(found)
                lower, steep = self._bound(backward, parts.owner)
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
            open_ones = Parts(parts.owner, parts.depth, parts.box, backward.bounds).of(left)
            self._push_halves(open_ones, steep[left].abs().flatten(1))

    def _bound(self, backward: Backward, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Of each part the smallest margin's bound (n,), and the slope of that margin (n, *image)."""
        root, end = self.root, self.root.end
        rows, target = (root.lower[owner] <= 0).nonzero(as_tuple=True)  # margins proved on the whole box are done
        margins = root.targets[owner[rows], target]
        lines = {relu: backward.relaxation(relu) for relu in root.graph.relus}
        trail = Trail()
        found = backward.lower(end, Rows(margins), rows, relaxations=lines, trail=trail)

        def again(some: Tensor) -> Tensor:
            double = in_float64(backward)
            exact = {relu: double.relaxation(relu) for relu in root.graph.relus}
            return double.lower(end, Rows(margins[some].double()), rows[some], relaxations=exact)

        found = certain(found, again, margin_rounding(backward)[rows])
        table = root.lower.new_full((len(owner), root.lower.shape[1]), torch.inf)
        table[rows, target] = found
        number = torch.zeros_like(table, dtype=torch.long)
        number[rows, target] = torch.arange(len(rows), device=rows.device)
        lower, worst = table.min(1)
        if trail.on_input is None:
            return lower, torch.zeros_like(backward.box.lower)
        return lower, trail.on_input[number.gather(1, worst[:, None])[:, 0]]

    def _try(self, owner: Tensor, points: Tensor) -> None:
        """Points as counterexamples."""
        with torch.no_grad():
            wrong = self.root.properties.network(points).argmax(1) != self.root.properties.labels[owner]
        for row in wrong.nonzero().flatten().tolist():
            self.ledger.refute(int(owner[row]), points[row], "halved boxes")

    def _push_halves(self, parts: Parts, slope: Tensor) -> None:
        """Both halves of each part, cut where the margin is steep and the box is wide."""
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


def _rows(box: Interval, rows: Tensor | slice) -> Interval:
    return Interval(box.lower[rows], box.upper[rows])


def _all_rows(bounds: dict[int, Interval], rows: Tensor | slice) -> dict[int, Interval]:
    return {position: _rows(known, rows) for position, known in bounds.items()}


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
