"""Searching properties on condensed networks: a first look at them, then bounds refined, and the search to its end.

Each property has a condensed network of its own, so they are searched one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from steadynet.bounds.condensed import CondensedNetwork, condense, condensed_size
from steadynet.bounds.condensed_refinement import NoteSlopes, no_note, refined_by_condensed
from steadynet.bounds.condensed_substitution import condensed_further
from steadynet.bounds.crown import OutOfTimeError
from steadynet.graph.maxima import has_maxima
from steadynet.graph.operations import Interval
from steadynet.verification.properties import Verdict
from steadynet.verification.search.carry_over import CarryOver
from steadynet.verification.search.condensed_attack import attack_from_random_points
from steadynet.verification.search.condensed_splitting import LATE_ATTACK, CondensedSplitting
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.property_batch import SearchState
from steadynet.verification.search.relu_splitting import split_relus
from steadynet.verification.search.root_bounds import REFINEMENT

KEPT_ENTRIES = 1 << 25  # of the matrices of all condensed networks that are kept from the first look to the search
MOST_ENTRIES = 1 << 24  # of the matrices of a condensed network that is searched at once, without a look at the whole


def look_condensed(state: SearchState, decisions: Decisions, limit: int) -> SearchState:
    """Split ReLUs a few times, on the condensed networks of the properties that have few unstable ReLUs.

    Args:
        state: the state after CROWN.
        decisions: where verdicts are noted.
        limit: how many subproblems a property may have.

    Returns:
        The state, which names the properties that later stages search on condensed networks.
    """
    if not can_condense(state) or has_maxima(state.batch.graph):
        return state
    condensed, lower = set(state.condensed), state.lower.clone()
    kept: dict[int, CondensedNetwork] = {}
    slopes = dict(state.slopes)
    room = KEPT_ENTRIES
    for index in sorted(decisions.open - state.condensed):
        network = _condensed(state, index, decisions.out_of_time([index]), MOST_ENTRIES)
        decisions.charge([index])
        if network is not None and index in decisions.open:
            condensed.add(index)
            search = CondensedSplitting(state, decisions, index, network)
            search.run(limit)
            lower[index] = search.proved_lower()
            slopes |= search.root_slopes() if index in decisions.open else {}
            if index in decisions.open and network.entries <= room:
                kept[index] = network
                room -= network.entries
    return replace(state, lower=lower, slopes=slopes, condensed=frozenset(condensed), networks=kept)


def split_condensed(state: SearchState, decisions: Decisions) -> SearchState:
    """Split ReLUs until every property is decided, or out of time: on condensed networks where these are small.

    Each property has a condensed network of its own, so they are searched one after the other.
    """
    if can_condense(state):
        for index in sorted(decisions.open):
            if index in state.condensed:  # the others were attacked and refined on the whole network
                _search_refined(state, decisions, index)
            else:
                search_condensed(state, decisions, index, carried=_carried(state, index))
            decisions.charge([index])  # to free the memory of a long search takes time, too, which is its own
    return split_relus(replace(state, condensed=frozenset()), decisions) if decisions.open else state


def can_condense(state: SearchState) -> bool:
    """Whether there are condensed networks: the ReLUs that are unstable must be all that is not linear."""
    return state.batch.budget.condense and state.batch.is_piecewise_linear


def _carried(state: SearchState, index: int) -> CarryOver | None:
    return state.batch.carried[index] if state.batch.carried else None


def search_condensed(
    state: SearchState,
    decisions: Decisions,
    index: int,
    limit: int | None = None,
    carried: CarryOver | None = None,
) -> None:
    """Split the ReLUs of one property on its condensed network, if that is small, up to so many subproblems."""
    most = state.batch.budget.memory // state.network.box.lower.element_size()
    network = _condensed(state, index, decisions.out_of_time([index]), most)
    decisions.charge([index])
    if network is not None and index in decisions.open:
        CondensedSplitting(state, decisions, index, network, carried).run(limit)


def _search_refined(state: SearchState, decisions: Decisions, index: int) -> None:
    """Refine the bounds of the inner neurons of a property, then split its ReLUs, on its condensed network."""
    out_of_time, budget = decisions.out_of_time([index]), state.batch.budget
    network = state.networks.get(index) or _condensed(state, index, out_of_time, MOST_ENTRIES)
    if network is None:
        return
    if LATE_ATTACK is None:
        margins = (state.lower[index] <= 0).nonzero().flatten()
        if attack_from_random_points(network, decisions, index, margins, budget.restarts, budget.attack_steps):
            return
    whole, bounds = refined_by_condensed(network, REFINEMENT, out_of_time, _noting(decisions, index, network)), {}
    for position, better in whole.bounds.items():
        lower, upper = (side.clone() for side in state.network.bounds[position])
        lower[index], upper[index] = better.lower[0], better.upper[0]
        bounds[position] = Interval(lower, upper)
    state = replace(state, network=replace(state.network, bounds=bounds))
    network = condensed_further(network, whole)
    decisions.charge([index])
    carried = _carried(state, index)
    if index in decisions.open and network.is_finite():
        CondensedSplitting(state, decisions, index, network, carried).run()
    if carried is not None and decisions.verdicts.get(index) is not Verdict.UNSAT:
        carried.keep_bounds(whole, 0)


def _noting(decisions: Decisions, index: int, network: CondensedNetwork) -> NoteSlopes:
    return partial(decisions.hints[index].refinement, network.layers) if decisions.hints else no_note


def _condensed(
    state: SearchState, index: int, out_of_time: Callable[[], bool], most_entries: int
) -> CondensedNetwork | None:
    """The condensed network of a property; None if it would be large, if numbers overflow, or if time is over."""
    whole = state.network.of_properties(torch.tensor([index], device=state.lower.device))
    memory = state.batch.budget.memory
    if condensed_size(whole) > most_entries:
        return None
    try:
        network = condense(whole, state.batch.margins[index], memory, out_of_time)
    except OutOfTimeError:
        return None
    return network if network.is_finite() else None
