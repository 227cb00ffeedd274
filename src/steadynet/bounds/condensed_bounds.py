"""Bounds of a batch of subproblems on a condensed network, and the ascent that raises them.

Values are stored in columns, one per subproblem. Gradients are in closed form, so no graph of operations is recorded.
Nothing here is a proof: :mod:`whole_pass` takes the batch to the whole network, where a pass can prove it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadynet.bounds.condensed import CondensedNetwork
from steadynet.bounds.optimised import Ascent

LEAST_UNIT = 0.05  # share of a bound that a multiplier and the whole range of its ReLU's input may make up in one step


@dataclass
class SplitColumns:
    """The split ReLUs of a batch: entry k holds the ReLU ``neuron[k]`` of column ``column[k]`` on the side ``sign[k]``.

    ``beta`` ≥ 0 is the multiplier of each.
    """

    neuron: Tensor
    column: Tensor
    sign: Tensor
    beta: Tensor
    _within: dict[int, tuple[Tensor, Tensor, Tensor] | None] = field(default_factory=dict, repr=False)

    def within(self, rows: slice) -> tuple[Tensor, Tensor, Tensor] | None:
        """The splits of one layer: their entries, their neurons counted from its first one, and their columns."""
        if rows.start not in self._within:  # ReLUs stay split while their multipliers move
            entries = ((self.neuron >= rows.start) & (self.neuron < rows.stop)).nonzero().flatten()
            found = entries, self.neuron[entries] - rows.start, self.column[entries]
            self._within[rows.start] = found if len(entries) else None
        return self._within[rows.start]

    def restricted(self, columns: Tensor, count: int) -> SplitColumns:
        """The splits of some of ``count`` columns, numbered anew."""
        place = torch.full((count,), -1, dtype=torch.long, device=columns.device)
        place[columns] = torch.arange(len(columns), device=columns.device)
        moved = place[self.column]
        keep = moved >= 0
        return SplitColumns(self.neuron[keep], moved[keep], self.sign[keep], self.beta[keep])


@dataclass
class Columns:
    """A batch of subproblems of one property: which margin each is about, its lines and its slopes.

    Attributes:
        margin: (n,), the margins.
        upper_slope: (neurons, n), slopes of the upper lines, those of split ReLUs fixed.
        upper_shift: (neurons, n), values of the upper lines at zero.
        slopes: (neurons, n), slopes of the lower lines, which an ascent moves.
        splits: the split ReLUs.
    """

    margin: Tensor
    upper_slope: Tensor
    upper_shift: Tensor
    slopes: Tensor
    splits: SplitColumns

    @classmethod
    def of(cls, network: CondensedNetwork, margin: Tensor, slopes: Tensor, splits: SplitColumns) -> Columns:
        """The batch of these margins with these slopes and splits."""
        count = len(margin)
        lines = network.lines
        upper_slope, shift = lines.upper_slope.repeat(1, count), lines.upper_shift.repeat(1, count)
        batch = cls(margin, upper_slope, shift, slopes.clone(), splits)
        index = splits.neuron, splits.column
        fixed = torch.where(splits.sign > 0, torch.ones_like(splits.sign), network.floor[splits.neuron, 0])
        batch.upper_slope[index], batch.upper_shift[index], batch.slopes[index] = fixed, 0.0, fixed
        return batch

    def __len__(self) -> int:
        return len(self.margin)

    def restricted(self, columns: Tensor) -> Columns:
        """Some of the columns."""
        return Columns(
            self.margin[columns],
            self.upper_slope[:, columns],
            self.upper_shift[:, columns],
            self.slopes[:, columns],
            self.splits.restricted(columns, len(self)),
        )

    def take(self, columns: Tensor, part: Columns) -> None:
        """Go on with the slopes and multipliers of a part, which holds these columns of the batch."""
        self.slopes[:, columns] = part.slopes
        self.splits.beta[torch.isin(self.splits.column, columns)] = part.splits.beta

    def repeated(self, times: int) -> Columns:
        """All columns several times, one copy of the batch after the other."""
        count, splits = len(self), self.splits
        shift = torch.arange(times, device=splits.column.device).repeat_interleave(len(splits.column)) * count
        return Columns(
            self.margin.repeat(times),
            self.upper_slope.repeat(1, times),
            self.upper_shift.repeat(1, times),
            self.slopes.repeat(1, times),
            SplitColumns(
                splits.neuron.repeat(times),
                splits.column.repeat(times) + shift,
                splits.sign.repeat(times),
                splits.beta.repeat(times),
            ),
        )


@dataclass(frozen=True)
class ColumnBounds:
    """What a backward pass over a condensed network found.

    Attributes:
        lower: (n,), lower bounds of the margins.
        behind: (neurons, n), the coefficients behind each ReLU.
        minimiser: (inputs, n), the corner of the box where each bound is attained.
    """

    lower: Tensor
    behind: Tensor
    minimiser: Tensor

    def restricted(self, columns: Tensor) -> ColumnBounds:
        """The bounds of some columns."""
        return ColumnBounds(self.lower[columns], self.behind[:, columns], self.minimiser[:, columns])


def lower(network: CondensedNetwork, batch: Columns) -> ColumnBounds:
    """Bound every column from below: the backward pass of CROWN, layer by layer from the last to the first."""
    inputs = network.inputs
    pending = network.margins.index_select(1, batch.margin)
    constant = network.constants[batch.margin]
    pull = batch.splits.beta * batch.splits.sign
    for layer in reversed(network.layers):
        rows = layer.rows
        behind, slopes = pending[inputs + rows.start : inputs + rows.stop], batch.slopes[rows]
        negative = behind.clamp_max(0)
        constant = constant + (negative * batch.upper_shift[rows]).sum(0)
        through = torch.addcmul(behind * slopes, negative, batch.upper_slope[rows] - slopes)
        splits = batch.splits.within(rows)
        if splits is not None:
            through.index_put_(splits[1:], -pull[splits[0]], accumulate=True)  # the term −β·sign·z of a split
        constant = constant + layer.constant @ through
        pending[: inputs + rows.start].addmm_(layer.matrix.transposed, through)
    on_input, (low, high) = pending[:inputs], network.box
    minimiser = torch.where(on_input > 0, low, high)
    return ColumnBounds(constant + (on_input * minimiser).sum(0), pending[inputs:], minimiser)


def ascent_directions(network: CondensedNetwork, batch: Columns, found: ColumnBounds) -> tuple[Tensor, Tensor]:
    """Gradients of the bounds in the slopes (neurons, n), and in the multipliers of the splits.

    A bound is a linear function of the ReLU inputs z at its minimiser, if each ReLU is one of its two lines. So one
    forward pass through these lines gives z, and the slope of a lower line counts with A⁺ · z.
    """
    inputs = network.inputs
    values = torch.empty(len(network.margins), len(batch), dtype=found.lower.dtype, device=found.lower.device)
    values[:inputs] = found.minimiser
    pre_activations = torch.empty_like(found.behind)
    for layer in network.layers:
        rows = layer.rows
        z = torch.addmm(layer.constant[:, None], layer.matrix.matrix, values[: inputs + rows.start])
        pre_activations[rows] = z
        upper = torch.addcmul(batch.upper_shift[rows], batch.upper_slope[rows], z)
        values[inputs + rows.start : inputs + rows.stop] = torch.where(
            found.behind[rows] > 0, batch.slopes[rows] * z, upper
        )
    on_slopes = found.behind.clamp_min(0) * pre_activations
    on_multipliers = -batch.splits.sign * pre_activations[batch.splits.neuron, batch.splits.column]
    return on_slopes, on_multipliers


def margins_at(network: CondensedNetwork, margin: Tensor, points: Tensor) -> Tensor:
    """The margins at some points (inputs, n), as the condensed network computes them."""
    inputs = network.inputs
    values = torch.empty(len(network.margins), points.shape[1], dtype=points.dtype, device=points.device)
    values[:inputs] = points
    for layer in network.layers:
        rows = layer.rows
        z = torch.addmm(layer.constant[:, None], layer.matrix.matrix, values[: inputs + rows.start])
        values[inputs + rows.start : inputs + rows.stop] = torch.maximum(z, network.floor[rows] * z)
    return (network.margins.index_select(1, margin) * values).sum(0) + network.constants[margin]


def ascend(
    network: CondensedNetwork,
    batch: Columns,
    ascent: Ascent,
    out_of_time: Callable[[], bool] = lambda: False,
    wanted: float = 0.0,
) -> ColumnBounds:
    """Raise the bounds of a batch by Adam on its slopes and multipliers; columns above ``wanted`` stay as they are.

    A slope is between 0 and 1, whatever the network is. A multiplier is a coefficient of a ReLU's input, so its step is
    a share of the ReLU's own coefficient.
    """
    splits = batch.splits
    moments = [torch.zeros_like(value) for value in (batch.slopes, batch.slopes, splits.beta, splits.beta)]
    movable, unit = batch.upper_shift > 0, splits.beta
    for iteration in range(ascent.iterations):
        found = lower(network, batch)
        if not iteration:
            unit = _units(network, found, splits)
        still = found.lower <= wanted
        if not bool(still.any()) or out_of_time():
            return found
        on_slopes, on_multipliers = ascent_directions(network, batch, found)
        step = adam_step(on_slopes, moments[0], moments[1], ascent, iteration, ascent.slope_rate)
        batch.slopes += step.mul_(movable & still)
        into_range(batch.slopes, network)
        step = adam_step(on_multipliers, moments[2], moments[3], ascent, iteration, ascent.multiplier_rate)
        splits.beta += step.mul_(unit * still[splits.column])
        splits.beta.clamp_min_(0)
    return lower(network, batch)


def _units(network: CondensedNetwork, found: ColumnBounds, splits: SplitColumns) -> Tensor:
    """What a multiplier of each split is measured by, whatever the scales of ReLUs and margins are.

    It is the coefficient behind its ReLU; or, if that is small, a share of what the bound lacks per unit of the ReLU's
    input, since a ReLU without weight may hold others by its sign.
    """
    width = (network.bounds.upper - network.bounds.lower)[splits.neuron, 0]
    share = LEAST_UNIT * found.lower[splits.column].abs() / width
    return found.behind[splits.neuron, splits.column].abs().maximum(share)


def into_range(slopes: Tensor, network: CondensedNetwork) -> None:
    """Pull slopes, in place, between each ReLU's own slope below zero and 1."""
    slopes.clamp_(0, 1)
    if network.is_leaky:
        torch.maximum(slopes, network.floor, out=slopes)


def adam_step(gradient: Tensor, first: Tensor, second: Tensor, ascent: Ascent, iteration: int, rate: float) -> Tensor:
    """One step of Adam up a gradient, with a decaying rate; ``first`` and ``second`` are its moments."""
    scale, root = ascent.decay**iteration / (1 - 0.9 ** (iteration + 1)), (1 - 0.999 ** (iteration + 1)) ** 0.5
    first.lerp_(gradient, 0.1)
    second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    return (first / second.sqrt().add_(1e-8 * root)).mul_(rate * scale * root)
