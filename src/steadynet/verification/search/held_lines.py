"""The lines of all ReLUs in each of some leaves of several properties, for one pass over the whole network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.backward import RelaxedNetwork
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.queries import BoundQuery, Trail
from steadynet.bounds.relaxation import Relaxation, Slopes
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.earlier_leaves import EarlierLeaves, held_of
from steadynet.verification.search.property_batch import SearchState


class HeldLines:
    """The lines of all ReLUs in each of some leaves, which belong to several properties.

    Args:
        state: what is known.
        group: the leaves, by property.

    Attributes:
        slopes: per position of a ReLU layer, the slopes of the lower lines, (leaves, elements).
    """

    def __init__(self, state: SearchState, group: Mapping[int, EarlierLeaves]) -> None:
        self.state, self.group = state, group
        self.owner = torch.cat([torch.full_like(leaves.margin, index) for index, leaves in group.items()])
        self.lines, self.multipliers, self.slopes = dict[int, Relaxation](), dict[int, Tensor](), dict[int, Tensor]()
        own = [leaves.slopes() for leaves in group.values()]
        for number, position in enumerate(state.network.graph.relus):
            self._hold(number, position, own)

    def _hold(self, number: int, position: int, slopes_of: Sequence[Tensor]) -> None:
        """Give the ReLUs of one layer the slopes of the leaves, and hold those that are split."""
        base, first = self.state.network.lines(position), 0
        sides = (base.lower_slope, base.upper_slope, base.upper_shift)
        slopes, upper_slope, shift = (side.flatten(1).index_select(0, self.owner) for side in sides)
        pull, has_splits = torch.zeros_like(slopes), False
        for leaves, named in zip(self.group.values(), slopes_of, strict=True):
            rows, layer = slice(first, first + len(leaves)), leaves.layers[number]
            first = rows.stop
            own = named[:, layer.rows].to(slopes).clamp(base.slope, 1.0)
            movable = (shift[rows, layer.elements] > 0) & (leaves.row > 0)[:, None]
            slopes[rows, layer.elements] = torch.where(movable, own, slopes[rows, layer.elements])
            within = leaves.splits.within(layer.rows)
            if within is not None:
                entries, neuron, column = within
                index, is_active = (column + rows.start, layer.elements[neuron]), leaves.splits.sign[entries] > 0
                slopes[index] = upper_slope[index] = torch.where(is_active, 1.0, base.slope).to(slopes)
                beta = leaves.splits.beta[entries].to(slopes).clamp_min(0)
                shift[index], pull[index], has_splits = 0.0, torch.where(is_active, beta, -beta), True
        shape = len(self.owner), *base.lower_slope.shape[1:]
        self.slopes[position] = slopes
        self.lines[position] = Relaxation(slopes.view(shape), upper_slope.view(shape), shift.view(shape), base.slope)
        if has_splits:
            self.multipliers[position] = pull.view(shape)

    def bounds(self, trail: Trail | None = None) -> Tensor:
        """Lower bounds of all leaves, one property after the other, in float64: a positive one is a proof.

        Args:
            trail: if given, receives the coefficients that the pass met on its way.
        """
        network, margin = self.state.network, torch.cat([leaves.margin for leaves in self.group.values()])
        assert network.rounding is not None
        functions = LinearFunctions(self.state.batch.margins[self.owner, margin])
        slopes = Slopes.fixed({position: line.lower_slope for position, line in self.lines.items()})
        query = BoundQuery(network.output, functions, slopes=slopes, multipliers=self.multipliers or None)
        errors = network.rounding.errors_of_pass(network.box.lower.dtype).of_functions(self.owner)
        each = replace(network, box=network.box.of(self.owner))  # every leaf is a property of its own here
        return RelaxedNetwork(each, self.lines, errors).lower(query, trail).proved

    def best_split(self, trail: Trail, rows: Tensor, leaves: EarlierLeaves) -> tuple[Tensor, Tensor]:
        """The ReLU of each of some leaves of one property whose upper line costs most, and how much that is.

        Args:
            trail: what the pass over all leaves left.
            rows: (n,), the numbers of the leaves among all of them.
            leaves: the leaves of the property, which name the neurons.

        Returns:
            The numbers of the ReLUs among those that have names (n,), and the costs (n,).
        """
        costs = [torch.zeros(len(rows), 0, device=rows.device)]
        for layer in leaves.layers:
            shift = self.lines[layer.position].upper_shift.flatten(1)[rows][:, layer.elements]
            if layer.position in trail.behind:
                behind = trail.behind[layer.position].flatten(1)[rows][:, layer.elements]
                costs.append(behind.clamp_max(0).neg() * shift)
            else:  # nothing depends on the layer
                costs.append(torch.zeros_like(shift))
        best = torch.nn.functional.pad(torch.cat(costs, 1), (0, 1)).max(1)  # there may be no names at all
        return best.indices, best.values

    def note(self, index: int, decisions: Decisions) -> None:
        """Note the leaves of one property as its proof."""
        assert decisions.hints is not None
        hints, leaves, rows = decisions.hints[index], self.group[index], self.owner == index
        for margin in leaves.margin.unique().tolist():
            hints.begin(self.state.batch.graph, margin)
        slopes = torch.cat([self.slopes[layer.position][rows][:, layer.elements] for layer in leaves.layers], 1).half()
        for row, (margin, held) in enumerate(zip(leaves.margin.tolist(), held_of(leaves), strict=True)):
            hints.condensed_leaf(margin, leaves.layers, held, slopes[row])
