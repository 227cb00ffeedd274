"""Branch and bound over ReLU signs: each batch holds subproblems of many properties."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from steadynet.bounds.backward import Rows
from steadynet.bounds.optimised import Ascent, Splits
from steadynet.verification.search import branching
from steadynet.verification.search.bounding import Bounded, bound, margins
from steadynet.verification.search.leaf import settle
from steadynet.verification.search.property_batch import Root
from steadynet.verification.search.rounding import certain, doubt, in_float64
from steadynet.verification.search.subproblem import Queue, Split, Subproblem

BRANCH = Ascent(iterations=5, slope_rate=0.1, multiplier_rate=0.1)
CANDIDATES = 4
QUEUE_MEMORY = 3 << 29  # bytes that open subproblems (half-precision slopes, and their splits) may take
POLISHED, POLISHING_STEPS = 16, 15  # minimisers a batch that are tried after a short descent


class Tree:
    """The open subproblems of a group of properties."""

    def __init__(self, root: Root) -> None:
        self.root, self.ledger, self.budget = root, root.ledger, root.budget
        neurons = sum(torch.Size(root.backward.shapes[relu]).numel() for relu in root.graph.relus)
        self.queue = Queue(QUEUE_MEMORY // (2 * neurons + 4096))
        owner, target = root.open_margins()
        for pair in zip(owner.tolist(), target.tolist(), strict=True):
            self.queue.push([Subproblem(*pair, float(root.lower[pair]), slopes=root.slopes.get(pair, {}))])

    def search(self, limit: int | None = None) -> None:
        """Until every property is decided, or has had ``limit`` subproblems."""
        while self.ledger.open and len(self.queue):
            batch = self.queue.pop(self.budget.batch, limit)
            if not batch:
                break
            self._branch(batch)
            self.ledger.charge(subproblem.owner for subproblem in batch)
            self._close()

    def _close(self) -> None:
        """A property with no open subproblem left is proved; the subproblems of a decided one are dropped."""
        waiting = self.queue.owners()
        for index in sorted(self.ledger.open - waiting):
            self.ledger.prove(index, 0.0, "branch and bound")
        for index in waiting - self.ledger.open:
            self.queue.drop(index)

    def _branch(self, batch: list[Subproblem]) -> None:
        out_of_time = self.ledger.out_of_time([subproblem.owner for subproblem in batch])
        for subproblem in batch:
            self.ledger.subproblems[subproblem.owner] += 1
        bounded = bound(self.root.backward, self.root.targets, batch, BRANCH, out_of_time)
        lower = self._confirmed(bounded, batch)
        self._try_minimisers(bounded, batch)
        left = [row for row in (lower <= 0).nonzero().flatten().tolist() if batch[row].owner in self.ledger.open]
        if out_of_time():
            self.queue.push(batch[row] for row in left)
        elif left:
            rows = torch.tensor(left, device=lower.device)
            self._split(bounded.restricted(rows), [batch[row] for row in left], out_of_time)

    def _confirmed(self, bounded: Bounded, batch: list[Subproblem]) -> Tensor:
        """The bounds; those hardly above zero again in float64, at the last slopes and multipliers."""

        def again(rows: Tensor) -> Tensor:
            part = bounded.restricted(rows)
            backward = in_float64(part.backward)
            multipliers = part.splits.dense({key: value.shape for key, value in part.behind.items()})
            return backward.lower(
                backward.graph.output,
                Rows(margins(self.root.targets, [batch[row] for row in rows.tolist()]).coefficients.double()),
                None,
                relaxations={relu: backward.relaxation(relu) for relu in backward.graph.relus},
                slopes=part.slopes.restricted(slice(None), torch.float64),
                multipliers={key: value.double() for key, value in multipliers.items()},
            )

        return certain(bounded.lower, again, self.root.rounding[[subproblem.owner for subproblem in batch]])

    def _try_minimisers(self, bounded: Bounded, batch: list[Subproblem]) -> None:
        """The bound's own minimisers as counterexamples; the most promising ones after a short descent, too."""
        properties, root = self.ledger.properties, self.root
        device = properties.images.device
        owner = torch.tensor([subproblem.owner for subproblem in batch], device=device)
        target = torch.tensor([subproblem.target for subproblem in batch], device=device)
        with torch.no_grad():
            scores = properties.network(bounded.minimiser)
        for row in (scores.argmax(1) != properties.labels[owner]).nonzero().flatten().tolist():
            self.ledger.refute(batch[row].owner, bounded.minimiser[row], "branch and bound")
        margin = (scores * root.targets[owner, target]).sum(1)
        best = margin.topk(min(POLISHED, len(batch)), largest=False).indices
        best = best[self.ledger.still_open(owner[best])]
        if len(best):
            root.descend(owner[best], target[best], bounded.minimiser[best], POLISHING_STEPS)

    def _split(self, bounded: Bounded, batch: list[Subproblem], out_of_time: Callable[[], bool]) -> None:
        enough = doubt(self.root.rounding[[subproblem.owner for subproblem in batch]])
        choice = branching.choose(bounded, margins(self.root.targets, batch), CANDIDATES, out_of_time)
        splits = split_lists(bounded.splits, len(batch))
        for row, subproblem in enumerate(batch):
            parent = Subproblem(
                subproblem.owner, subproblem.target, subproblem.lower, splits[row], bounded.slopes.of_row(row)
            )
            where = choice.where(row)
            if where is None:
                self._settle(parent)
            else:
                self.queue.push(
                    parent.child(Split(*where, sign), float(choice.sides[side, row]))
                    for side, sign in enumerate((1, -1))
                    if not enough[row] < choice.sides[side, row] < torch.inf
                )

    def _settle(self, leaf: Subproblem) -> None:
        """Every ReLU is fixed: a linear program decides."""
        if leaf.owner not in self.ledger.open or self.root.lower[leaf.owner, leaf.target] > 0:
            return
        left = self.budget.timeout - self.ledger.clock.seconds[leaf.owner]
        settled = settle(self.root.exact(), self.root.targets[leaf.owner, leaf.target], leaf, left)
        if settled is None:
            self.queue.push([leaf])  # out of time: the ledger ends it
        elif not settled.lower > float(self.root.rounding[leaf.owner]):
            region = self.ledger.properties.region[leaf.owner : leaf.owner + 1]
            point = region.project(settled.point[None].to(region.lower))[0]
            if not self.ledger.refute(leaf.owner, point, "linear program"):
                reason = f"the smallest margin is {settled.lower:.1e}: zero to within rounding"
                self.ledger.fail(leaf.owner, reason, "linear program")
        elif settled.whole:
            self.root.lower[leaf.owner, leaf.target] = settled.lower
            self.queue.drop(leaf.owner, leaf.target)


def split_lists(splits: Splits, rows: int) -> list[tuple[Split, ...]]:
    """The splits a row, with the multipliers they ended with."""
    result: list[list[Split]] = [[] for _ in range(rows)]
    for position, (row, element) in splits.index.items():
        columns = (row.tolist(), element.tolist(), splits.sign[position].tolist(), splits.beta[position].tolist())
        for owner, where, sign, beta in zip(*columns, strict=True):
            result[owner].append(Split(position, where, int(sign), beta))
    return [tuple(entries) for entries in result]
