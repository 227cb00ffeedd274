"""Short proofs of another network, tried on the new one: the leaves of many properties are bounded by one pass.

A pass over few functions takes hardly less time than one over some more, so this is cheaper than one condensed network
per property. Bounds of inner neurons are refined first where the proofs say how. Leaves that are nearly proved are
split: mostly both sides are proved. A property whose leaves are all proved is decided. What is left of the others is
tried again, each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.queries import Trail
from steadynet.bounds.refinement_together import KnownSlopes, refined_together
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.earlier_leaves import EarlierLeaves, EarlierProof
from steadynet.verification.search.held_lines import HeldLines
from steadynet.verification.search.property_batch import SearchState

MOST_LEAVES = 48  # of a proof that is tried with others
AT_ONCE = 256  # leaves
NEARLY = 0.3  # of how far below zero CROWN's bound is: leaves that are no farther are split at once
DEPTH = 3  # times


def prove_together(
    state: SearchState, decisions: Decisions, proofs: Mapping[int, EarlierProof]
) -> tuple[SearchState, dict[int, EarlierProof]]:
    """Try those of some proofs that are short.

    Args:
        state: what is known.
        decisions: where verdicts are noted, and time is charged.
        proofs: proofs of another network, by property.

    Returns:
        The state with better bounds of inner neurons, and what is left of the proofs of the properties that are still
        open.
    """
    left = {index: _of_open_margins(state, index, proof) for index, proof in proofs.items()}
    groups: list[dict[int, EarlierProof]] = [{}]
    for index, proof in left.items():
        if len(proof.leaves) <= MOST_LEAVES:
            if sum(len(one.leaves) for one in groups[-1].values()) + len(proof.leaves) > AT_ONCE:
                groups.append({})
            groups[-1][index] = proof
    for group in groups:
        if any(len(proof.leaves) for proof in group.values()):
            state = _refined(state, decisions, group)
            left.update(_try(state, decisions, group))
    return state, {index: proof for index, proof in left.items() if index in decisions.open}


def _of_open_margins(state: SearchState, index: int, proof: EarlierProof) -> EarlierProof:
    return replace(proof, leaves=proof.leaves.of_margins(state.lower[index] <= 0))


def _refined(state: SearchState, decisions: Decisions, group: Mapping[int, EarlierProof]) -> SearchState:
    """Bounds of inner neurons from the slopes of the proofs, for those that have such slopes."""
    known = {index: KnownSlopes(proof.layers, proof.refined) for index, proof in group.items() if proof.refined}
    if not known:
        return state

    def note(index: int, number: int, bounds: Tensor, slopes: Tensor) -> None:
        if decisions.hints:
            decisions.hints[index].refinement(group[index].layers, number, bounds, slopes)

    network = refined_together(state.network, known, state.batch.budget.memory, note)
    decisions.charge(list(known))
    return replace(state, network=network)


def _try(state: SearchState, decisions: Decisions, group: Mapping[int, EarlierProof]) -> dict[int, EarlierProof]:
    """Bound the leaves of some properties, and prove those of which every bound is positive.

    Returns:
        What is left of the proofs of the others.
    """
    leaves, left = {index: proof.leaves for index, proof in group.items()}, dict[int, EarlierProof]()
    with torch.no_grad():
        held = HeldLines(state, leaves)
        bounds = _bounds(held, decisions, 0 if decisions.hints else DEPTH)  # who writes a proof wants the leaves
    for (index, proof), found in zip(group.items(), bounds.split(list(map(len, leaves.values()))), strict=True):
        lower = state.lower[index].clone()
        lower[proof.leaves.margin] = torch.inf
        lower = lower.scatter_reduce(0, proof.leaves.margin, found, "amin")
        if bool((lower > 0).all()):
            if decisions.hints:
                held.note(index, decisions)
                for margin in range(len(lower)) if proof.refined else ():
                    decisions.hints[index].go_on(margin)  # so that a proof takes the refined bounds
            decisions.prove(index, float(lower.min()), DecidedBy.EARLIER_PROOF)
        elif not decisions.hints:  # as above
            left[index] = _rest(proof, found)
    decisions.charge(list(group))
    return left


def _bounds(held: HeldLines, decisions: Decisions, depth: int) -> Tensor:
    """Bounds of leaves, (n,). What is nearly proved is split, at most ``depth`` times: the least part counts."""
    trail, first = Trail(), 0
    found = held.bounds(trail)
    for index, leaves in held.group.items():
        decisions.subproblems[index] += len(leaves.splits.column.unique())
    rows = _nearly_proved(held, found) if depth else torch.zeros_like(held.owner[:0])
    parts, parents = dict[int, EarlierLeaves](), list[Tensor]()
    for index, leaves in held.group.items():
        here = rows[(rows >= first) & (rows < first + len(leaves))]
        neuron, gain = held.best_split(trail, here, leaves)
        if 0 < len(here) <= AT_ONCE - sum(map(len, parents)) and bool((gain > 0).all()):
            parts[index] = leaves.of(here - first).split(neuron)
            parents.append(here)
        first += len(leaves)
    if parts:
        bounds = _bounds(HeldLines(held.state, parts), decisions, depth - 1).split(list(map(len, parts.values())))
        for here, sides in zip(parents, bounds, strict=True):
            found[here] = torch.maximum(found[here], sides.view(2, -1).amin(0))
    return found


def _nearly_proved(held: HeldLines, found: Tensor) -> Tensor:
    """The numbers of the leaves that are not proved, of the properties where none of these is far from it."""
    crown = held.state.lower[held.owner, torch.cat([leaves.margin for leaves in held.group.values()])]
    failed, far = found <= 0, ~(found > NEARLY * crown)  # no bound at all is far, too
    hopeless = held.owner[failed & far].unique()
    return (failed & ~torch.isin(held.owner, hopeless)).nonzero().flatten()


def _rest(proof: EarlierProof, found: Tensor) -> EarlierProof:
    """The leaves of a proof that are not proved by these bounds (n,)."""
    proved, least = found > 0, dict[int, float]()
    for margin, bound in zip(proof.leaves.margin[proved].tolist(), found[proved].tolist(), strict=True):
        least[margin] = min(least.get(margin, bound), bound)
    return replace(proof, leaves=proof.leaves.of((~proved).nonzero().flatten()), least=least, is_tried=True)
