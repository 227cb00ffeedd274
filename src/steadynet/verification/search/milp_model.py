"""The exact mixed-integer program of a network over one box, for HiGHS: small networks, and leaves with a maximum.

Every value is an affine form of the variables. The variables are the inputs, and those that unstable ReLUs and maxima
add. A ReLU with input z in [l, u] becomes z = y − p with 0 ≤ y ≤ u·a and 0 ≤ p ≤ −l·(1 − a), where a is binary; its
value is y − slope·p.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.crown import OutOfTimeError
from steadynet.graph.operations import Interval, Operation, ReLU
from steadynet.graph.pooling import MaxPool
from steadynet.verification.search.milp_solver import Limits, Minimum, MixedIntegerProgram, Row
from steadynet.verification.search.subproblem import Split

ZERO_SHARE = 1e-6  # of the size of a margin's terms: below this a margin is zero as far as HiGHS and float32 can tell
_BOUND_ROOM = 1e-6  # of a neuron's largest bound, and so never near the tolerance: see ``minimise``


@dataclass
class _Columns:
    """The variables: inputs first, then those of each ReLU and maximum."""

    lower: list[Tensor] = field(default_factory=list)
    upper: list[Tensor] = field(default_factory=list)
    binary: list[Tensor] = field(default_factory=list)
    count: int = 0

    def add(self, lower: Tensor, upper: Tensor, binary: bool = False) -> Tensor:
        """Add variables between bounds (n,); returns their numbers."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.binary.append(torch.full(lower.shape, binary, device="cpu"))
        self.count += len(lower)
        return torch.arange(self.count - len(lower), self.count, device="cpu")


class MilpModel:
    """The mixed-integer program of one property; ``network`` has its box alone, in float64 on the CPU."""

    def __init__(
        self, network: BoundedNetwork, splits: Iterable[Split] = (), out_of_time: Callable[[], bool] = lambda: False
    ) -> None:
        self.shape = network.shapes[0]
        self.columns = _Columns()
        self.rows: list[Row] = []
        self.columns.add(network.box.lower[0].flatten(), network.box.upper[0].flatten())
        self.splits, self.out_of_time = list(splits), out_of_time
        inputs = self.columns.count
        identity = torch.eye(inputs, dtype=torch.float64, device="cpu").view(inputs, *self.shape)
        values = [torch.cat([torch.zeros_like(identity[:1]), identity])]  # a value: (1 + variables, *shape)
        for position, node in network.graph.numbered():
            self._check_time()
            sources = [self._padded(values[source]) for source in node.inputs]
            values.append(self._value(position, node.operation, sources, network.bounds.get(position)))
        self.output = self._padded(values[-1])
        columns = self.columns
        lower, upper, binary = (torch.cat(side) for side in (columns.lower, columns.upper, columns.binary))
        self.program = MixedIntegerProgram(lower, upper, binary, self.rows)

    def _check_time(self) -> None:
        if self.out_of_time():
            raise OutOfTimeError

    def _padded(self, form: Tensor) -> Tensor:
        """A form with zeros for the variables that came after it."""
        return F.pad(form, [0, 0] * (form.dim() - 1) + [0, self.columns.count + 1 - len(form)])

    def _value(self, position: int, operation: Operation, sources: list[Tensor], known: Interval | None) -> Tensor:
        if isinstance(operation, (ReLU, MaxPool)):
            assert known is not None
            room = _BOUND_ROOM * known.largest() * (known.lower < known.upper)
            lower, upper = (known.lower - room)[0], (known.upper + room)[0]
            if isinstance(operation, MaxPool):
                return self._maximum(operation, sources[0], Interval(lower, upper))
            held = [split for split in self.splits if split.position == position]
            return self._rectified(operation.slope, sources[0], Interval(lower, upper), held)
        constant = operation.apply(*(source[:1] for source in sources))
        return torch.cat([constant, operation.linear(*(source[1:] for source in sources))])

    def _rectified(self, slope: float, source: Tensor, known: Interval, held: list[Split]) -> Tensor:
        shape, flat = source.shape[1:], source.flatten(1)
        lower, upper = known.lower.flatten().clone(), known.upper.flatten().clone()
        for split in held:
            side = lower if split.sign > 0 else upper
            side[split.element] = 0.0
            slack = _BOUND_ROOM * (1 + float(flat[:, split.element].abs().sum()))
            self._constrain(split.sign * flat[:, split.element], {}, -slack, np.inf)
        unstable = ((lower < 0) & (upper > 0)).nonzero().flatten()
        result = flat * torch.full_like(lower, slope).masked_fill(lower >= 0, 1.0)
        result[:, unstable] = 0.0
        zeros = torch.zeros(len(unstable), dtype=torch.float64, device="cpu")
        above = self.columns.add(zeros, upper[unstable])
        below = self.columns.add(zeros, -lower[unstable])
        side_of = self.columns.add(zeros, zeros + 1, binary=True)
        for number, element in enumerate(unstable.tolist()):
            self._check_time()
            y, p, a = int(above[number]), int(below[number]), int(side_of[number])
            self._constrain(-flat[:, element], {y: 1.0, p: -1.0}, 0.0, 0.0)
            self._constrain(None, {y: 1.0, a: -float(upper[element])}, -np.inf, 0.0)
            self._constrain(None, {p: 1.0, a: -float(lower[element])}, -np.inf, -float(lower[element]))
        result = self._padded(result)
        result[above + 1, unstable], result[below + 1, unstable] = 1.0, -slope
        return result.view(-1, *shape)

    def _maximum(self, operation: MaxPool, source: Tensor, known: Interval) -> Tensor:
        """The maximum y of z_i: y ≥ z_i, y ≤ z_i + (U − l_i)(1 − a_i), Σ a_i = 1, over the candidates that can win."""
        channels, height, width = source.shape[1:]
        unit = torch.eye(height * width, dtype=torch.float64, device="cpu").view(-1, 1, height, width)
        member = operation.apply(unit).flatten(1) > 0  # (pixels, windows)
        windows = operation.apply(source[:1]).shape[1:]
        chosen: list[Tensor] = []
        for channel in range(channels):
            lower, upper = known.lower[channel].flatten(), known.upper[channel].flatten()
            for window in range(member.shape[1]):
                self._check_time()
                pixels = member[:, window].nonzero().flatten()
                floor = lower[pixels].max()
                able = pixels[(upper[pixels] > floor) | (pixels == pixels[lower[pixels].argmax()])]
                forms = source[:, channel].flatten(1)[:, able]
                chosen.append(forms[:, 0] if len(able) == 1 else self._largest(forms, lower[able], upper[able]))
        return torch.stack([self._padded(form[:, None])[:, 0] for form in chosen], 1).view(-1, *windows)

    def _largest(self, forms: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        top = upper.max()
        y = int(self.columns.add(lower.max()[None], top[None]))
        zeros = torch.zeros_like(lower)
        wins = self.columns.add(zeros, zeros + 1, binary=True).tolist()
        for candidate, a in enumerate(wins):
            room = float(top - lower[candidate])
            self._constrain(-forms[:, candidate], {y: 1.0}, 0.0, np.inf)
            self._constrain(-forms[:, candidate], {y: 1.0, a: room}, -np.inf, room)
        self._constrain(None, dict.fromkeys(wins, 1.0), 1.0, 1.0)
        form = torch.zeros(self.columns.count + 1, dtype=torch.float64, device="cpu")
        form[y + 1] = 1.0
        return form

    def _constrain(self, form: Tensor | None, entries: dict[int, float], lower: float, upper: float) -> None:
        """lower ≤ form + entries ≤ upper."""
        columns = torch.tensor(list(entries), dtype=torch.long, device="cpu")
        weights = torch.tensor(list(entries.values()), dtype=torch.float64, device="cpu")
        constant = 0.0
        if form is not None:
            constant, used = float(form[0]), form[1:].nonzero().flatten()
            columns, weights = torch.cat([used, columns]), torch.cat([form[1:][used], weights])
        self.rows.append(Row(columns, weights, lower - constant, upper - constant))

    def margin(self, target: Tensor) -> Tensor:
        """target · output as a form (1 + variables,)."""
        return self.output @ target.to(self.output)

    def size(self, form: Tensor) -> float:
        """How large the terms of a form can be: what tolerances are relative to."""
        return self.program.size(form)

    def minimise(self, form: Tensor, seconds: float, enough: float = np.inf, target: float = -np.inf) -> Minimum:
        """The form's minimum; a bound above ``enough`` or a value below ``target`` will do.

        HiGHS' presolve has called small programs infeasible that are not (where a bound exceeds what the rows imply by
        just its tolerance), so a bound above ``enough`` counts only if HiGHS finds it with and without presolve.
        """
        limits = Limits(time.perf_counter() + seconds, enough, target)
        first = self._inputs_of(self.program.minimise(form, limits, presolve=False))
        if not (first.finished and first.lower > enough):
            return first
        second = self._inputs_of(self.program.minimise(form, limits, presolve=True))
        return second if second.lower <= first.lower else Minimum(first.lower, first.point, second.finished)

    def attempt(self, form: Tensor, seconds: float, enough: float, target: float) -> Minimum:
        """Look for a point with a small value of the form; the bound of this one run is no proof."""
        limits = Limits(time.perf_counter() + seconds, enough, target)
        return self._inputs_of(self.program.minimise(form, limits, presolve=False))

    def _inputs_of(self, found: Minimum) -> Minimum:
        """The same minimum with the network's input instead of all variables as its point."""
        if found.point is None:
            return found
        return found._replace(point=found.point[: torch.Size(self.shape).numel()].view(self.shape))
