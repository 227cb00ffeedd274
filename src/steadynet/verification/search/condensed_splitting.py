"""Branch and bound over ReLU signs on the condensed network of one property; every proof is made on the whole network.

The condensed network holds the unstable ReLUs only, so its bounds are quick, but their rounding is not counted. A
subproblem whose bound is positive is bounded once more, by one pass over the whole network with the same slopes and
multipliers, in which every rounding is counted. Only that pass proves it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.condensed import CondensedNetwork
from steadynet.bounds.condensed_bounds import ColumnBounds, Columns, SplitColumns, ascend, lower, margins_at
from steadynet.bounds.optimised import Ascent
from steadynet.bounds.whole_pass import WholePass
from steadynet.verification.properties import DecidedBy, Verdict
from steadynet.verification.search.branching import SIGNS
from steadynet.verification.search.carry_over import CarryOver, PartGroup
from steadynet.verification.search.condensed_attack import NEARLY_REFUTED, attack, attack_from_random_points
from steadynet.verification.search.condensed_branching import choose
from steadynet.verification.search.condensed_part import Part
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.leaf_settler import LeafSettler
from steadynet.verification.search.property_batch import SearchState
from steadynet.verification.search.relu_splitting import POLISHED, POLISHING_STEPS, QUEUE_MEMORY
from steadynet.verification.search.subproblem import Split, Subproblem

MOST_EXPECTED = 20.0  # subproblems that a first look is likely to need, beyond which it ends
DEEP = 30.0  # splits, beyond which it does not matter how many are needed
LATE_ATTACK: int | None = 8  # batches before the attack with all restarts; None has it before inner bounds are refined
ROOT = Ascent(iterations=5, slope_rate=0.4, decay=0.85)  # further steps gain less than what comes after a first look
ROOT_AGAIN = Ascent(iterations=3, slope_rate=0.06)  # slopes of a first look are the start: longer steps lose at first
# slopes are those of the parent, so short steps; a fourth gains less than the subproblems that it takes the time of
QUICK_BRANCH = Ascent(iterations=3, slope_rate=0.05, multiplier_rate=0.4)
POLISH_EVERY = 8  # batches from one descent on minimisers to the next
PROOFS_AT_ONCE = 64  # subproblems that wait for one pass over the whole network; 1 proves each batch by itself


class CondensedSplitting:
    """The open subproblems of one property.

    Args:
        state: what is known.
        decisions: where verdicts are noted.
        index: the property.
        network: its condensed network.
        carried: what searches in other boxes around the same image left; this search leaves there what it learned.
        repaired: parts whose slopes and multipliers are as good as they get, so that they are split first of all. A
            margin that has some consists of them, and of parts that are proved.
    """

    def __init__(
        self,
        state: SearchState,
        decisions: Decisions,
        index: int,
        network: CondensedNetwork,
        carried: CarryOver | None = None,
        repaired: Sequence[Part] = (),
    ) -> None:
        self.state, self.decisions, self.index, self.network = state, decisions, index, network
        self.open: list[tuple[float, int, Part]] = []
        self.pushed, self.batches, self.leaves = 0, 0, 0
        self.has_split = False
        self.roots: list[Part] = []  # the whole margins, with the slopes that their bounds ended with
        self.polished_at = POLISH_EVERY // 2 if index in state.condensed else 1  # the first look has done it already
        self.expected = (
            0.0  # how many subproblems the last batch is likely to lead to, if all splits gain as its first did
        )
        self.waiting: list[Part] = []  # their bounds are positive on the condensed network: a pass is to prove them
        self.proving = WholePass(network.whole, state.batch.margins[index])
        self.least: dict[int, float] = {}  # per margin, the least bound of its parts that a pass has proved
        self.settler = LeafSettler(state, decisions)
        self.capacity = QUEUE_MEMORY // (2 * network.neurons + 4096)
        self.is_warm = any(owner == index for owner, _ in state.slopes)
        self.carried = carried
        self.proof: list[Part] = []  # the proved parts, for the search in the next box
        self.empty: dict[int, tuple[PartGroup, ...]] = {}  # per margin, parts that are empty in this box
        self.repaired, known = list(repaired), {part.margin for part in repaired}
        for margin in (state.lower[index] <= 0).nonzero().flatten().tolist():
            if decisions.hints and carried is not None and carried.is_rest:
                decisions.hints[index].go_on(margin)
            elif decisions.hints:
                decisions.hints[index].begin(state.batch.graph, margin)
            self._push(() if margin in known else self._first_parts(margin))

    def _first_parts(self, margin: int) -> list[Part]:
        """The whole margin; or the parts that proved it in another box."""
        left = None if self.carried is None else self.carried.start(margin, self.network)
        if left is not None:
            parts, self.empty[margin] = left
            self.has_split |= len(parts) != 1 or bool(parts[0].neurons)
            return parts
        slopes = self._condensed_slopes(self.state.slopes.get((self.index, margin), {}))
        return [Part(margin, float(self.state.lower[self.index, margin]), (), (), (), slopes)]

    def _condensed_slopes(self, slopes: dict[int, Tensor]) -> Tensor:
        result = self.network.lines.lower_slope[:, 0].half()
        for layer in self.network.layers:
            if layer.position in slopes:
                result[layer.rows] = slopes[layer.position].flatten()[layer.elements].half()
        return result

    def _push(self, parts: Iterable[Part]) -> None:
        """Queue parts, the smallest bound first; where memory is short, the newest first, which are soon proved."""
        crowded = len(self.open) >= self.capacity
        for part in parts:
            self.pushed += 1
            heapq.heappush(self.open, (-torch.inf if crowded else part.lower, -self.pushed, part))

    def run(self, limit: int | None = None) -> None:
        """Bound and split batch after batch, until the property is decided or has had ``limit`` subproblems."""
        budget, decisions = self.state.batch.budget, self.decisions
        taken = 0
        self._split_repaired()
        while self.index in decisions.open and self.open and (limit is None or taken < limit):
            batch = [heapq.heappop(self.open)[2] for _ in range(min(budget.batch, len(self.open)))]
            decisions.subproblems[self.index] += sum(bool(part.neurons) for part in batch)
            taken += len(batch)
            self._branch(batch)
            if not self.open or not self.proving.rounding or len(self.waiting) >= PROOFS_AT_ONCE:
                self._prove_waiting()
            decisions.charge([self.index])
            if limit is not None and self.expected > MOST_EXPECTED:
                break  # what comes after the first look gains more
        self._prove_waiting()
        if self.index in decisions.open and not self.open:
            if not self.has_split:
                decisions.prove(self.index, float(self.proved_lower().min()), DecidedBy.OPTIMISED_SLOPES)
            self.settler.conclude(self.index)
            decisions.charge([self.index])
        if self.carried is not None and self.decisions.verdicts.get(self.index) is Verdict.UNSAT:
            self.carried.keep_proof(self.network, self.proof, self.empty)

    def _split_repaired(self) -> None:
        """Split the parts that need no ascent before."""
        out_of_time, at_once = self.decisions.out_of_time([self.index]), self.state.batch.budget.batch
        while self.repaired and self.index in self.decisions.open and not out_of_time():
            parts, self.repaired = self.repaired[:at_once], self.repaired[at_once:]
            batch = self._columns(parts)
            self.decisions.subproblems[self.index] += len(parts)
            self._split(batch, lower(self.network, batch), parts, out_of_time)
        self._push(self.repaired)
        self.repaired = []
        if not self.open:
            self._prove_waiting()

    def open_parts(self) -> list[Part]:
        """The parts that are not proved."""
        return [*self.repaired, *(part for _, _, part in self.open)]

    def open_margins(self) -> set[int]:
        """The margins that have such parts."""
        return {part.margin for part in self.open_parts()}

    def root_slopes(self) -> dict[tuple[int, int], dict[int, Tensor]]:
        """The optimised slopes of the whole margins, per property and margin: a start for another search."""
        return {(self.index, part.margin): self._subproblem(part).slopes for part in self.roots}

    def proved_lower(self) -> Tensor:
        """(margins,), the best proved lower bounds of the whole margins, with those whose parts are all proved."""
        lower = self.state.lower[self.index].clone()
        still_open = self.open_margins()
        for margin, bound in self.least.items():
            if margin not in still_open and not self.leaves:
                lower[margin] = max(float(lower[margin]), bound)
        return lower

    def _branch(self, parts: list[Part]) -> None:
        """Bound a batch; split what is not proved."""
        out_of_time = self.decisions.out_of_time([self.index])
        batch = self._columns(parts)
        ascent = QUICK_BRANCH if self.batches else ROOT_AGAIN if self.is_warm else ROOT
        found = ascend(self.network, batch, ascent, out_of_time, self.proving.rounding)
        self._try_minimisers(batch, found)
        if self.index not in self.decisions.open:
            return
        if out_of_time():
            self._push(parts)
            return
        parts = _with_results(parts, batch, found.lower)
        self.roots += [part for part in parts if not part.neurons]
        untried = [not part.tried for part in parts]  # the others are split, so that the search comes to an end
        promising = [row and new for row, new in zip(self._promising(found.lower), untried, strict=True)]
        self.waiting += [replace(part, tried=True) for part, row in zip(parts, promising, strict=True) if row]
        left = [row for row, is_promising in enumerate(promising) if not is_promising]
        if left:
            columns = torch.tensor(left, device=found.lower.device)
            rest, parts = found.restricted(columns), [parts[row] for row in left]
            self._split(batch.restricted(columns), rest, parts, out_of_time)

    def _columns(self, parts: Sequence[Part]) -> Columns:
        """The batch of some parts."""
        device, dtype = self.network.margins.device, self.network.margins.dtype
        columns = [column for column, part in enumerate(parts) for _ in part.neurons]
        splits = SplitColumns(
            torch.tensor([neuron for part in parts for neuron in part.neurons], dtype=torch.long, device=device),
            torch.tensor(columns, dtype=torch.long, device=device),
            torch.tensor([sign for part in parts for sign in part.signs], dtype=dtype, device=device),
            torch.tensor([beta for part in parts for beta in part.betas], dtype=dtype, device=device),
        )
        slopes = torch.stack([part.slopes for part in parts], 1).to(dtype)
        margin = torch.tensor([part.margin for part in parts], device=device)
        return Columns.of(self.network, margin, slopes, splits)

    def _try_minimisers(self, batch: Columns, found: ColumnBounds) -> None:
        """Try the points where bounds are attained as counterexamples; now and then after a short descent, too."""
        properties = self.state.batch.properties
        reached = margins_at(self.network, batch.margin, found.minimiser)
        best = reached.topk(min(POLISHED, len(batch)), largest=False).indices
        points = found.minimiser[:, best].t().reshape(-1, *properties.images.shape[1:])
        for row in (reached[best] <= NEARLY_REFUTED).nonzero().flatten().tolist():
            if self.decisions.refute(self.index, points[row], DecidedBy.RELU_SPLITTING):
                return
        self.batches += 1
        if self.batches == LATE_ATTACK:
            budget, margins = self.state.batch.budget, batch.margin.unique()
            attack_from_random_points(
                self.network, self.decisions, self.index, margins, budget.restarts, budget.attack_steps
            )
        elif self.batches % POLISH_EVERY == self.polished_at:
            start, margin = found.minimiser[:, best], batch.margin[best]
            attack(self.network, self.decisions, self.index, margin, start, POLISHING_STEPS)

    def _promising(self, bounds: Tensor) -> list[bool]:
        """Whether a pass over the whole network is likely to prove each part: rounding must leave something of it."""
        return self.proving.promising(bounds).tolist()

    def _prove_waiting(self) -> None:
        """Prove the parts that wait for it; those that a pass does not prove are split further."""
        if self.index in self.decisions.open and self.waiting:
            parts, self.waiting = self.waiting, []
            proved = self._proved(parts)
            self._push(part for part, is_proved in zip(parts, proved, strict=True) if not is_proved)

    def _proved(self, parts: Sequence[Part]) -> list[bool]:
        """Whether each part is proved by a pass over the whole network in which every rounding is counted."""
        if not parts:
            return []
        bound = self.proving.bounds(self.network.layers, self._columns(parts))
        for part, proved in zip(parts, bound.tolist(), strict=True):
            if proved > 0:
                self._keep(part)
                self.least[part.margin] = min(self.least.get(part.margin, proved), proved)
                if self.decisions.hints:
                    held = list(zip(part.neurons, part.signs, part.betas, strict=True))
                    self.decisions.hints[self.index].condensed_leaf(part.margin, self.network.layers, held, part.slopes)
        return (bound > 0).tolist()

    def _keep(self, part: Part) -> None:
        if self.carried is not None and self.carried.earlier is None:
            self.proof.append(part)

    def _split(
        self, batch: Columns, found: ColumnBounds, parts: Sequence[Part], out_of_time: Callable[[], bool]
    ) -> None:
        """Queue both sides of the ReLU that each part is split at; settle those without an unstable ReLU."""
        self.has_split = True
        choice = choose(self.network, batch, found)
        gain = (choice.sides - found.lower).mean(0).clamp_min(1e-9)
        self.expected = float((-found.lower / gain).clamp(0, DEEP).exp2().sum())
        left: list[Part] = []
        likely = zip(*(self._promising(side) for side in choice.sides), strict=True)
        columns = zip(parts, choice.neurons, choice.sides.t().tolist(), likely, strict=True)
        for part, neuron, bounds, promising in columns:
            if neuron is None:
                self.leaves += 1
                if not self.settler.settle(self._subproblem(part), out_of_time):
                    left.append(part)  # out of time: the next charge ends the property
                else:
                    self._keep(part)
                continue
            for sign, bound, is_promising in zip(SIGNS, bounds, promising, strict=True):
                (self.waiting if is_promising else left).append(part.child(neuron, sign, bound))
        self._push(left)

    def _subproblem(self, part: Part) -> Subproblem:
        """A part in terms of the whole network."""
        splits, slopes = [], {}
        for layer in self.network.layers:
            known = self.network.whole.bounds[layer.position]
            whole = (known.lower[0] >= 0).flatten().to(part.slopes.dtype)
            whole[layer.elements] = part.slopes[layer.rows]
            slopes[layer.position] = whole.view(layer.shape)
            elements = layer.elements.tolist()
            for neuron, sign, beta in zip(part.neurons, part.signs, part.betas, strict=True):
                if layer.rows.start <= neuron < layer.rows.stop:
                    splits.append(Split(layer.position, elements[neuron - layer.rows.start], sign, beta))
        return Subproblem(self.index, part.margin, part.lower, tuple(splits), slopes)


def _with_results(parts: Sequence[Part], batch: Columns, bounds: Tensor) -> list[Part]:
    """The parts with the slopes and multipliers that their bounds ended with."""
    slopes, betas = batch.slopes.t().half(), iter(batch.splits.beta.tolist())
    return [
        replace(part, lower=max(part.lower, bound), betas=tuple(next(betas) for _ in part.neurons), slopes=slopes[row])
        for row, (part, bound) in enumerate(zip(parts, bounds.tolist(), strict=True))
    ]
