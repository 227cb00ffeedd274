"""Passes over the whole network of one property that prove subproblems, whatever found their slopes and multipliers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork, RelaxedNetwork
from steadynet.bounds.condensed import ChosenNeurons
from steadynet.bounds.condensed_bounds import SplitColumns
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.precision import in_float64
from steadynet.bounds.queries import BoundQuery, LowerBound
from steadynet.bounds.relaxation import Relaxation, Slopes
from steadynet.bounds.thinning import thinned_with_places

THINNED = 64  # subproblems in a pass, from which on ReLUs that are never active are left out


class Choices(Protocol):
    """What a pass over the whole network needs to know of a batch of subproblems: :class:`Columns` say it."""

    @property
    def margin(self) -> Tensor:
        """The margins, (n,)."""

    @property
    def slopes(self) -> Tensor:
        """The slopes of lower lines, (neurons, n)."""

    @property
    def splits(self) -> SplitColumns:
        """The split ReLUs."""

    def restricted(self, columns: Tensor) -> Choices:
        """Some of the subproblems."""


class WholePass:
    """Bounds subproblems of one property with every rounding counted.

    Args:
        whole: the network over the box of the property.
        margins: (margins, outputs), the margins as coefficients of the output.

    Attributes:
        rounding: what rounding takes off a bound, as seen in the last pass; 0 before the first one.
    """

    def __init__(self, whole: BoundedNetwork, margins: Tensor) -> None:
        self.whole, self.margins, self.rounding = whole, margins, 0.0
        self._thin = False

    def promising(self, bounds: Tensor) -> Tensor:
        """Whether a pass is likely to prove subproblems with these computed bounds: rounding must leave something."""
        return bounds > self.rounding / 2

    def bounds(self, layers: Sequence[ChosenNeurons], batch: Choices) -> Tensor:
        """Lower bounds of the margins of a batch, (n,): a positive one is a proof.

        Args:
            layers: which ReLUs the slopes and splits of the batch speak of.
            batch: the subproblems.
        """
        bound, doubtful = self.quick_bounds(layers, batch)
        rows = doubtful.nonzero().flatten()
        if len(rows):
            bound[rows] = torch.maximum(bound[rows], self.careful_bounds(layers, batch.restricted(rows)))
        return bound

    def quick_bounds(self, layers: Sequence[ChosenNeurons], batch: Choices) -> tuple[Tensor, Tensor]:
        """The bounds in the network's precision, and where those in float64 may prove what these do not; a mask."""
        with torch.no_grad():
            self._thin = self._thin or len(batch.margin) >= THINNED
            found = self._lower(layers, batch, self._smaller if self._thin else self.relaxed)
        assert found.error is not None
        self.rounding = float(found.error.median().nan_to_num(0.0, 0.0))
        # float64 rounds less, but the network itself is run in its own precision: a try pays only near zero
        return found.proved, ~(found.proved > 0) & self.promising(found.value)

    def careful_bounds(self, layers: Sequence[ChosenNeurons], batch: Choices) -> Tensor:
        """The bounds in float64."""
        with torch.no_grad():
            return self._lower(layers, batch, self._in_float64).proved

    def _lower(self, layers: Sequence[ChosenNeurons], batch: Choices, relaxed: RelaxedNetwork) -> LowerBound:
        places = self._thinned[1] if self._thin else None
        split, query = whole_query(layers, batch, relaxed, self.margins, places)
        return split.lower(query)

    @cached_property
    def relaxed(self) -> RelaxedNetwork:
        """The whole network over the box of the property, without a split."""
        return self.whole.relaxed()

    @cached_property
    def _thinned(self) -> tuple[BoundedNetwork, dict[int, Tensor]]:
        """The same without ReLUs that are never active in the box, which is all that a pass needs."""
        return thinned_with_places(self.whole)

    @cached_property
    def _smaller(self) -> RelaxedNetwork:
        return self._thinned[0].relaxed()

    @property
    def _in_float64(self) -> RelaxedNetwork:
        return self._smaller_in_float64 if self._thin else self._whole_in_float64

    @cached_property
    def _smaller_in_float64(self) -> RelaxedNetwork:
        return in_float64(self._thinned[0]).relaxed()

    @cached_property
    def _whole_in_float64(self) -> RelaxedNetwork:
        return in_float64(self.whole).relaxed()


def whole_query(
    layers: Sequence[ChosenNeurons],
    batch: Choices,
    relaxed: RelaxedNetwork,
    margins: Tensor,
    places: Mapping[int, Tensor] | None = None,
) -> tuple[RelaxedNetwork, BoundQuery]:
    """The same batch on the whole network: its ReLUs with the splits applied, and what to bound.

    Args:
        layers: which ReLUs the slopes and splits speak of, such as the layers of a condensed network.
        batch: the columns. Slopes that a ReLU cannot have are pulled into its range.
        relaxed: the whole network over the box of the property, relaxed without a split, in any precision.
        margins: (margins, outputs), the margins as coefficients of the output.
        places: where the elements of thinned layers have gone (:func:`thinned_with_places`). What is said of a ReLU
            that is left out is not used: it is zero whatever the slopes are, and needs no multiplier.
    """
    count, splits, margins = len(batch.margin), batch.splits, margins.to(relaxed.network.box.lower)
    lines, slopes, multipliers = dict(relaxed.relaxations), {}, {}
    for layer in layers:
        base = relaxed.relaxations[layer.position]
        shape = count, *base.lower_slope.shape[1:]
        elements = layer.elements
        if places and layer.position in places:
            elements = places[layer.position][elements]
        values = base.lower_slope.flatten(1).repeat(count, 1)
        moved = (base.upper_shift.flatten()[elements.clamp_min(0)] > 0) & (elements >= 0)
        unstable = moved.nonzero().flatten()
        own = batch.slopes[layer.rows].index_select(0, unstable).to(values).clamp_(base.slope, 1.0)
        values.index_copy_(1, elements[unstable], own.t())
        within = splits.within(layer.rows)
        if within is not None:
            here, neuron, column = within
            there = (elements[neuron] >= 0).nonzero().flatten()
            here, index = here[there], (column[there], elements[neuron[there]])
            upper_slope, shift = (side.flatten(1).repeat(count, 1) for side in (base.upper_slope, base.upper_shift))
            values[index] = upper_slope[index] = torch.where(splits.sign[here] > 0, 1.0, base.slope).to(values)
            shift[index] = 0.0
            lines[layer.position] = Relaxation(
                values.view(shape), upper_slope.view(shape), shift.view(shape), base.slope
            )
            pull = torch.zeros_like(values)
            pull[index] = (splits.beta[here] * splits.sign[here]).to(values)
            multipliers[layer.position] = pull.view(shape)
        slopes[layer.position] = values.view(shape)
    functions = LinearFunctions(margins[batch.margin])
    query = BoundQuery(relaxed.network.output, functions, slopes=Slopes.fixed(slopes), multipliers=multipliers or None)
    return replace(relaxed, relaxations=lines), query
