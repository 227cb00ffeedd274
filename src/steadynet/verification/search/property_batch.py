"""The whole region of each property, before anything is split: bounds, attack, slopes, better inner bounds."""

from __future__ import annotations

import torch
from torch import Tensor

from steadynet.attacks.pgd import descend, misclassified
from steadynet.attacks.region import InputRegion
from steadynet.bounds.backward import Backward, Rows, Slopes
from steadynet.bounds.crown import OutOfTimeError, propagate, rows_at_once
from steadynet.bounds.optimised import Ascent, optimise, refine
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of
from steadynet.verification.properties import Properties
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.decisions import Ledger
from steadynet.verification.search.rounding import CERTAIN, certain, doubt, in_float64, margin_rounding, on_cpu, widened

SLOPES = Ascent(iterations=12, slope_rate=0.3)
REFINEMENT = Ascent(iterations=10, slope_rate=0.4)
REFINED_AT_ONCE = 8  # properties


class Root:
    """One group of properties as a batch: ``lower`` (properties, margins) holds the best bounds known."""

    def __init__(self, ledger: Ledger, budget: Budget) -> None:
        self.ledger, self.budget, self.properties = ledger, budget, ledger.properties
        self.graph = graph_of(self.properties.network, tuple(self.properties.images.shape[1:]))
        self.end = self.graph.output
        self.targets = robustness_margins(self.properties)
        self.slopes: dict[tuple[int, int], dict[int, Tensor]] = {}
        self.backward: Backward
        self.lower: Tensor
        self.rounding: Tensor  # (properties,): what float32 may do to a margin
        self._double: Backward | None = None
        self._exact: Backward | None = None

    def misclassified(self) -> None:
        """An image with a wrong label is its own counterexample (told with its stable share, after the bounds)."""
        wrong = misclassified(self.properties.network, self.properties.images, self.properties.labels)
        for index in wrong.nonzero().flatten().tolist():
            self.ledger.refute(index, self.properties.images[index], "misclassified")

    def bound(self) -> None:
        """Intervals and CROWN; a property whose margins are all positive is proved."""
        box = Interval(self.properties.region.lower, self.properties.region.upper)
        everyone = list(range(len(self.properties)))
        try:
            backward, values = propagate(self.graph, box, self.budget.memory, self.ledger.out_of_time(everyone))
        except OutOfTimeError:
            self.ledger.charge(everyone)
            return
        self._note_stable(backward)
        self.backward = widened(backward)
        self.rounding = margin_rounding(self.backward)
        self.lower = interval_margins(self.targets, values[-1], doubt(self.rounding))
        owner, target = (self.lower <= CERTAIN).nonzero(as_tuple=True)
        relaxations = {relu: self.backward.relaxation(relu) for relu in self.graph.relus}
        at_once = rows_at_once(self.backward, self.end, self.budget.memory)
        for rows in torch.arange(len(owner), device=owner.device).split(at_once):
            some, which = owner[rows], target[rows]
            found = self.backward.lower(self.end, Rows(self.targets[some, which]), some, relaxations=relaxations)
            self._improve(some, which, found, None)
        self.conclude("crown")

    def attack(self) -> None:
        """PGD on every open margin by itself: a point where it is negative is a counterexample."""
        owner, target = (side.repeat(self.budget.restarts) for side in self.open_margins())
        for rows in torch.arange(len(owner), device=owner.device).split(self.budget.batch):
            left = rows[self.ledger.still_open(owner[rows])]
            if len(left):
                self.descend(owner[left], target[left], None, self.budget.attack_steps)
                self.ledger.charge(owner[left].tolist())

    def descend(self, owner: Tensor, target: Tensor, start: Tensor | None, steps: int) -> None:
        """Descend on margins from ``start`` (else uniform points), and refute what can be refuted."""
        part, margin = self.properties[owner], self.targets[owner, target]
        lower, width = part.region.lower, part.region.upper - part.region.lower
        unit = InputRegion(torch.zeros_like(width), torch.ones_like(width))  # inputs may have widths of any size
        shares = descend(
            lambda tried: (part.network(torch.addcmul(lower, tried, width)) * margin).sum(1),
            unit,
            unit.sample() if start is None else unit.project((start - lower) / width.clamp_min(1e-30)),
            steps=steps,
            step_size=1 / 8,
            momentum=0.75,
            shrink=True,
            stop=self.ledger.out_of_time(owner.tolist()),
        )
        points = part.region.project(torch.addcmul(lower, shares, width))
        wrong = misclassified(part.network, points, part.labels)
        for row in wrong.nonzero().flatten().tolist():
            self.ledger.refute(int(owner[row]), points[row], "attack")

    def optimise_slopes(self) -> None:
        """Optimised slopes for every open margin."""
        owner, target = self.open_margins()
        relaxations = {relu: self.backward.relaxation(relu) for relu in self.graph.relus}
        for rows in torch.arange(len(owner), device=owner.device).split(self.budget.batch):
            some, which, slopes = owner[rows], target[rows], Slopes()
            served = some.tolist()
            margins = Rows(self.targets[some, which])
            found = optimise(
                self.backward, self.end, margins, some, relaxations, SLOPES,
                slopes=slopes, enough=CERTAIN, out_of_time=self.ledger.out_of_time(served),
            )  # fmt: skip
            found = self._improve(some, which, found, slopes)
            for row in (found <= 0).nonzero().flatten().tolist():
                self.slopes[served[row], int(which[row])] = slopes.of_row(row)
            self.ledger.charge(served)
        self.conclude("optimised slopes")

    def refine(self) -> None:
        """Better bounds of the inner rectifiers, for the properties still open, a few at a time."""
        left = torch.tensor(sorted(self.ledger.open), dtype=torch.long, device=self.lower.device)
        for some in left.split(REFINED_AT_ONCE):
            rows = some[self.ledger.still_open(some)]
            if not len(rows):
                continue
            part = self.backward.of_properties(rows)
            refine(part, REFINEMENT, self.budget.memory, self.ledger.out_of_time(rows.tolist()))
            for position, better in widened(part).bounds.items():
                known = self.backward.bounds[position]
                known.lower[rows] = torch.maximum(known.lower[rows], better.lower)
                known.upper[rows] = torch.minimum(known.upper[rows], better.upper)
            self.ledger.charge(rows.tolist())
        self._double = self._exact = None

    def open_margins(self) -> tuple[Tensor, Tensor]:
        """(property, margin) of everything not yet proved."""
        owner, target = (self.lower <= 0).nonzero(as_tuple=True)
        keep = self.ledger.still_open(owner)
        return owner[keep], target[keep]

    def conclude(self, by: str) -> None:
        """Properties with only positive margins are proved."""
        self.ledger.charge()
        for index in sorted(self.ledger.open):
            if bool((self.lower[index] > 0).all()):
                self.ledger.prove(index, float(self.lower[index].min()), by)

    def double(self) -> Backward:
        """The root in float64."""
        if self._double is None:
            self._double = in_float64(self.backward)
        return self._double

    def exact(self) -> Backward:
        """The root in float64 on the CPU, where linear and mixed-integer programs are made and solved."""
        if self._exact is None:
            self._exact = on_cpu(self.double())
        return self._exact

    def _improve(self, owner: Tensor, target: Tensor, found: Tensor, slopes: Slopes | None) -> Tensor:
        def again(rows: Tensor) -> Tensor:
            double = self.double()
            lines = {relu: double.relaxation(relu) for relu in self.graph.relus}
            margins = Rows(self.targets[owner[rows], target[rows]].double())
            chosen = None if slopes is None else slopes.restricted(rows, torch.float64)
            return double.lower(self.end, margins, owner[rows], relaxations=lines, slopes=chosen)

        found = certain(found, again, self.rounding[owner])
        self.lower[owner, target] = torch.maximum(self.lower[owner, target], found)
        return found

    def unstable(self, index: int) -> int:
        """How many rectifiers of a property may have either sign."""
        known = (self.backward.bounds[relu] for relu in self.graph.relus)
        return sum(int(((each.lower[index] < 0) & (each.upper[index] > 0)).sum()) for each in known)

    def _note_stable(self, backward: Backward) -> None:
        relus = [backward.bounds[relu] for relu in self.graph.relus]
        stable = [((known.lower >= 0) | (known.upper <= 0)).flatten(1) for known in relus]
        if stable:
            self.ledger.stable = list(torch.cat(stable, 1).float().mean(1).tolist())


def robustness_margins(properties: Properties) -> Tensor:
    """The rows y_label − y_j of every property: (properties, classes − 1, classes)."""
    with torch.no_grad():
        classes = properties.network(properties.images[:1]).shape[1]
    identity = torch.eye(classes, device=properties.images.device)
    others = torch.stack([torch.cat([identity[:label], identity[label + 1 :]]) for label in properties.labels.tolist()])
    return identity[properties.labels][:, None] - others


def interval_margins(targets: Tensor, output: Interval, least: Tensor) -> Tensor:
    """Lower bounds of the margins from the output's interval, where above ``least``: (properties, margins)."""
    positive, negative = targets.clamp_min(0), targets.clamp_max(0)
    lower = (positive @ output.lower[:, :, None] + negative @ output.upper[:, :, None]).squeeze(2)
    return torch.where(
        (lower > least[:, None]) & lower.isfinite(), lower, -torch.inf
    )  # what intervals leave in doubt, CROWN decides
