"""Passes over a condensed network that are proofs: the rounding of its rows is counted, and that of the pass.

When the network is run on an input x of the box, the input z of each unstable ReLU and each margin is

    z = row · (x, r) + constant + e,      |e| ≤ error,

where r are the outputs of the unstable ReLUs before it (:class:`RowErrors`). A pass takes a margin back to x. It
replaces a · r by t · z at each ReLU, with coefficients t that are valid as they are computed:

- a ≥ 0, and 0 ≤ t ≤ a: a product with a slope in [0, 1], and rounding never takes it out of there;
- a < 0: t is a times the slope of the upper line, whose shift has room for the rounding of t;
- a ReLU that is held on one side: a · r = a · z or 0, less the multiplier, one rounding of t.

Then t · z is t · row · (x, r) + t · constant, and costs |t| · error. The sums t · row are added up in the network's
precision, which costs at most γ · |t| · size of the row, whatever the order. So a pass subtracts Σ |t| · (error +
γ · size + the rounding of t), with all t that it meets. Other sums are in float64.

As the matrices are small, this takes a tenth of the time of a pass over the whole network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import CondensedLayer, CondensedNetwork
from steadynet.bounds.condensed_bounds import SplitColumns
from steadynet.bounds.extraction import RowErrors
from steadynet.bounds.queries import rounded_down
from steadynet.bounds.relaxation import Relaxation
from steadynet.bounds.whole_pass import Choices
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import LONG_SUM, OWN_ROUNDING, gamma, underflow_unit, unit_roundoff

PROMISING = 0.5  # share of its rounding that a pass over the whole network counts, at least
_FEW = 8  # roundings of a coefficient beside the sum of products that it is


class CondensedProof:
    """Bounds subproblems of one property with every rounding counted.

    Args:
        network: its condensed network, with errors.

    Attributes:
        network: the network; its lines may be replaced by tighter ones of the same neurons (:func:`tightened`).
        rounding: what rounding takes off a bound, as seen in the last pass; 0 before the first one.
    """

    def __init__(self, network: CondensedNetwork) -> None:
        assert network.errors is not None
        self.network, self.rounding = network, 0.0
        of_neurons, of_margins = network.errors
        dtype, unit = network.margins.dtype, unit_roundoff(network.margins.dtype)
        high, low = network.box.upper[:, 0].double(), network.box.lower[:, 0].double()
        largest = torch.maximum(low.abs(), high.abs())
        self._centre, self._half_width = (low + high) / 2, torch.stack([(high - low) / 2, largest])
        longest = sum(layer.matrix.longest_column for layer in network.layers)
        self._sums = gamma(longest + _FEW, dtype)  # of the products that one coefficient is the sum of
        costs = gamma(network.neurons + _FEW, dtype)
        self._width = network.bounds.largest()[:, 0].double()
        everything = float(largest.sum() + self._width.sum()) + len(network.margins)
        tiny = underflow_unit(dtype) * everything  # of one underflow at every coefficient
        self._constants = of_neurons.constants
        self._lost = (self._lost_by(of_neurons, 4 * tiny) + 2 * unit * self._width) * OWN_ROUNDING
        self._lost_on_margins = self._lost_by(of_margins, 4 * tiny) * OWN_ROUNDING
        constants = float(of_neurons.constants.abs().sum())
        self._tiny = 8 * (network.neurons + _FEW) * (tiny + underflow_unit(dtype) * constants)
        self._own = OWN_ROUNDING / (1 - costs) ** 2 if costs < 0.5 else torch.inf  # of sums of costs

    def _lost_by(self, rows: RowErrors, tiny: float) -> Tensor:
        """(n,), what a unit of coefficient of each row costs."""
        return rows.errors + (self._sums + LONG_SUM) * rows.sizes + tiny

    def promising(self, bounds: Tensor) -> Tensor:
        """Whether a pass over the whole network may prove subproblems with these bounds, as less rounding counts there.

        The errors of several rows may cancel, which only a pass over the whole network sees.
        """
        return bounds > PROMISING * self.rounding

    def bounds(self, batch: Choices, costs: dict[int, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Lower bounds of the margins of a batch, (n,) in float64: a positive one is a proof.

        Args:
            batch: the subproblems, with slopes and splits of the neurons of the network.
            costs: if given, receives by how much the upper line of each ReLU lowers the bounds: (neurons of a layer, n)
                per layer, by its first neuron.

        Returns:
            The bounds, and where a pass over the whole network may prove what these do not; a mask.
        """
        network = self.network
        assert network.errors is not None
        pending = network.margins.index_select(1, batch.margin)
        constant = network.errors[1].constants[batch.margin]
        value, lost = self._lower(pending, constant, batch.slopes, batch.splits, network.layers, costs)
        lost = (lost + self._lost_on_margins[batch.margin]) * OWN_ROUNDING
        self.rounding = float(lost.median().nan_to_num(0.0, 0.0)) if len(lost) else 0.0
        found = _proved(value, lost)
        return found, ~(found > 0) & self.promising(value)

    def neuron_bounds(self, layer: CondensedLayer, rows: Tensor, sign: Tensor, slopes: Tensor) -> Tensor:
        """Lower bounds of sign · z for some neurons of a layer, (n,) in the network's precision.

        Args:
            layer: the layer.
            rows: (n,), numbers of neurons in the layer.
            sign: (n,), 1 or −1.
            slopes: (neurons before the layer, n), lower slopes.
        """
        network = self.network
        before = [one for one in network.layers if one.rows.stop <= layer.rows.start]
        pending = (layer.matrix.dense()[rows] * sign[:, None]).t().contiguous()
        number = rows + layer.rows.start
        constant = self._constants[number] * sign
        none = torch.zeros(0, dtype=torch.long, device=rows.device)
        splits = SplitColumns(none, none, slopes.new_zeros(0), slopes.new_zeros(0))
        value, lost = self._lower(pending, constant, slopes, splits, before)
        return rounded_down(_proved(value, (lost + self._lost[number]) * OWN_ROUNDING), pending.dtype)

    def _lower(
        self,
        pending: Tensor,
        constant: Tensor,
        slopes: Tensor,
        splits: SplitColumns,
        layers: Sequence[CondensedLayer],
        costs: dict[int, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Bounds of functions (inputs + neurons, n) plus constants (n,), and what rounding may have added to them.

        The functions change in place. What their own rows are off is not in what is lost yet.
        """
        network, inputs = self.network, self.network.inputs
        lost, shifted = torch.zeros_like(constant), torch.zeros_like(constant)
        for layer in reversed(layers):
            rows = layer.rows
            behind = pending[inputs + rows.start : inputs + rows.stop]
            through, negative = self._through(behind, rows, slopes, splits)
            lost += (through.abs().t() @ self._lost[rows].to(through)).double() * self._own
            if network.is_leaky:
                own = unit_roundoff(behind.dtype) * self._width[rows] * network.floor[rows, 0]
                lost += 2 * (own @ behind.double().abs())
            constant = constant + self._constants[rows] @ through.double()
            shifted += network.lines.upper_shift[rows, 0].double() @ negative.double()
            if costs is not None:
                costs[rows.start] = network.lines.upper_shift[rows] * -negative
            pending[: inputs + rows.start].addmm_(layer.matrix.transposed, through)
        on_input = pending[:inputs].double()
        constant = constant + shifted + self._centre @ on_input
        below, size = self._half_width @ on_input.abs()
        return constant - below, lost + 4 * LONG_SUM * (size - shifted + constant.abs()) + self._tiny

    def _through(self, behind: Tensor, rows: slice, slopes: Tensor, splits: SplitColumns) -> tuple[Tensor, Tensor]:
        """Coefficients of ReLUs as those of their inputs, (n, columns), and the negative ones that take a shift."""
        lines, floor = self.network.lines, self.network.floor[rows]
        upper, fixed = lines.upper_slope[rows], lines.lower_slope[rows]
        own = slopes[rows].to(behind).clamp(0, 1)
        if self.network.is_leaky:
            own = own.maximum(floor)
        own = torch.where(lines.upper_shift[rows] > 0, own, fixed)
        negative = behind.clamp_max(0)
        through = torch.addcmul(behind * own, negative, upper - own)
        within = splits.within(rows)
        if within is not None:
            entries, neuron, column = within
            is_active, beta = splits.sign[entries] > 0, splits.beta[entries].to(behind).clamp_min(0)
            a, pull = behind[neuron, column], torch.where(is_active, beta, -beta)
            through[neuron, column] = torch.where(is_active, a, a * floor[neuron, 0]) - pull
            negative[neuron, column] = 0.0
        return through, negative


def tightened(network: CondensedNetwork, whole: BoundedNetwork) -> CondensedNetwork:
    """The same rows with the lines of tighter bounds. A ReLU that is stable there stays a neuron, with one line."""
    bounds, lines = [], []
    for layer in network.layers:
        known = Interval(*(side.flatten()[layer.elements, None] for side in whole.bounds[layer.position]))
        bounds.append(known)
        lines.append(Relaxation.crown(known, float(network.floor[layer.rows.start])))
    if not lines:
        return replace(network, whole=whole)
    joined = Relaxation(
        torch.cat([line.lower_slope for line in lines]),
        torch.cat([line.upper_slope for line in lines]),
        torch.cat([line.upper_shift for line in lines]),
    )
    sides = (torch.cat([known[side] for known in bounds]) for side in (0, 1))
    return replace(network, whole=whole, bounds=Interval(*sides), lines=joined)


def _proved(value: Tensor, lost: Tensor) -> Tensor:
    """What is left of bounds; −∞ where something is not a number."""
    left = value - lost
    return torch.where(left.isfinite(), left, -torch.inf)
