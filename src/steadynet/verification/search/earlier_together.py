"""Short proofs of another network, tried on the new one: the leaves of many properties are bounded by one pass.

A pass over few functions takes hardly less time than one over some more, so this is cheaper than one condensed network
per property. A property whose leaves are all proved is decided. The others are tried again, each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundQuery, RelaxedNetwork
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.relaxation import Relaxation, Slopes
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.earlier_leaves import EarlierLeaves, EarlierProof, held_of
from steadynet.verification.search.property_batch import SearchState

MOST_LEAVES = 48  # of a proof that is tried with others
AT_ONCE = 256  # leaves


def prove_together(
    state: SearchState, decisions: Decisions, proofs: Mapping[int, EarlierProof]
) -> dict[int, EarlierProof]:
    """Try those of some proofs that are short and need no refined inner bounds.

    Args:
        state: what is known.
        decisions: where verdicts are noted, and time is charged.
        proofs: proofs of another network, by property.

    Returns:
        The proofs of the properties that are still open.
    """
    groups: list[dict[int, EarlierLeaves]] = [{}]
    for index, proof in proofs.items():
        leaves = proof.leaves.of_margins(state.lower[index] <= 0)
        if not proof.refined and len(leaves) <= MOST_LEAVES:
            if sum(map(len, groups[-1].values())) + len(leaves) > AT_ONCE:
                groups.append({})
            groups[-1][index] = leaves
    for group in groups:
        if any(map(len, group.values())):
            _try(state, decisions, group)
    return {index: proof for index, proof in proofs.items() if index in decisions.open}


def _try(state: SearchState, decisions: Decisions, group: Mapping[int, EarlierLeaves]) -> None:
    """Bound the leaves of some properties, and prove those of which every bound is positive."""
    held = HeldLines(state, group)
    with torch.no_grad():
        bounds = held.bounds().split([len(leaves) for leaves in group.values()])
    for (index, leaves), found in zip(group.items(), bounds, strict=True):
        decisions.subproblems[index] += len(leaves.splits.column.unique())
        lower = state.lower[index].clone()
        lower[leaves.margin] = torch.inf
        lower = lower.scatter_reduce(0, leaves.margin, found, "amin")
        if bool((lower > 0).all()):
            if decisions.hints:
                held.note(index, decisions)
            decisions.prove(index, float(lower.min()), DecidedBy.EARLIER_PROOF)
    decisions.charge(list(group))


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
        for number, position in enumerate(state.network.graph.relus):
            self._hold(number, position)

    def _hold(self, number: int, position: int) -> None:
        """Give the ReLUs of one layer the slopes of the leaves, and hold those that are split."""
        base, first = self.state.network.lines(position), 0
        sides = (base.lower_slope, base.upper_slope, base.upper_shift)
        slopes, upper_slope, shift = (side.flatten(1).index_select(0, self.owner) for side in sides)
        pull, has_splits = torch.zeros_like(slopes), False
        for leaves in self.group.values():
            rows, layer = slice(first, first + len(leaves)), leaves.layers[number]
            first = rows.stop
            own = leaves.slopes()[:, layer.rows].to(slopes).clamp(base.slope, 1.0)
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

    def bounds(self) -> Tensor:
        """Lower bounds of all leaves, one property after the other, in float64: a positive one is a proof."""
        network, margin = self.state.network, torch.cat([leaves.margin for leaves in self.group.values()])
        assert network.rounding is not None
        functions = LinearFunctions(self.state.batch.margins[self.owner, margin])
        slopes = Slopes.fixed({position: line.lower_slope for position, line in self.lines.items()})
        query = BoundQuery(network.output, functions, slopes=slopes, multipliers=self.multipliers or None)
        errors = network.rounding.errors_of_pass(network.box.lower.dtype).of_functions(self.owner)
        each = replace(network, box=network.box.of(self.owner))  # every leaf is a property of its own here
        return RelaxedNetwork(each, self.lines, errors).lower(query).proved

    def note(self, index: int, decisions: Decisions) -> None:
        """Note the leaves of one property as its proof."""
        assert decisions.hints is not None
        hints, leaves, rows = decisions.hints[index], self.group[index], self.owner == index
        for margin in leaves.margin.unique().tolist():
            hints.begin(self.state.batch.graph, margin)
        slopes = torch.cat([self.slopes[layer.position][rows][:, layer.elements] for layer in leaves.layers], 1).half()
        for row, (margin, held) in enumerate(zip(leaves.margin.tolist(), held_of(leaves), strict=True)):
            hints.condensed_leaf(margin, leaves.layers, held, slopes[row])
