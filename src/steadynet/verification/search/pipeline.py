"""The stages of the search, cheapest first: each decides the properties it can and hands on what it learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from steadynet.bounds.crown import has_large_maps
from steadynet.devices import plain_convolutions
from steadynet.graph.rounding import Arithmetic
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.search.attack import attack_before_bounds, attack_margins, attack_quickly
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.carry_over import CarryOver
from steadynet.verification.search.condensed_search import look_condensed, split_condensed
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.earlier_proofs import begin_with_earlier_proofs
from steadynet.verification.search.input_splitting import split_inputs
from steadynet.verification.search.milp_attack import attack_by_milp
from steadynet.verification.search.program_splitting import MOST_INPUTS, split_by_programs
from steadynet.verification.search.property_batch import PropertyBatch, SearchState
from steadynet.verification.search.relu_splitting import look_at_relus
from steadynet.verification.search.root_bounds import (
    bound_margins,
    check_images,
    expand_maxima,
    optimise_slopes,
    refine_inner_bounds,
)

FEW_INPUTS = MOST_INPUTS  # up to so many, boxes are halved or programs are solved before anything is condensed
ATTACK_FIRST = True  # whether a short attack comes before the first bounds of large networks
FIRST_LOOK = 32  # subproblems that a property may have before its inner bounds are refined

Stage = Callable[[SearchState, Decisions], SearchState]


def first_condensed_look(state: SearchState, decisions: Decisions) -> SearchState:
    """Optimise slopes and split a few ReLUs on condensed networks, where boxes are not halved."""
    return state if _has_few_inputs(state) else look_condensed(state, decisions, FIRST_LOOK)


def first_look(state: SearchState, decisions: Decisions) -> SearchState:
    """Split the ReLUs of every property a few times, or more often if that may soon be the end."""
    return look_at_relus(state, decisions, FIRST_LOOK)


def first_attack(state: SearchState, decisions: Decisions) -> SearchState:
    """Attack with a few steps; with all of them if the network has few inputs, where an attack is cheap."""
    return attack_margins(state, decisions) if _has_few_inputs(state) else attack_quickly(state, decisions)


def second_attack(state: SearchState, decisions: Decisions) -> SearchState:
    """Attack what is still open with all steps and restarts."""
    return state if _has_few_inputs(state) else attack_margins(state, decisions)


def is_large(batch: PropertyBatch) -> bool:
    """Whether the first bounds of a network take much longer than a short attack."""
    with torch.no_grad():
        return has_large_maps(batch.graph, batch.graph.values(batch.properties.images[:1]))


def _has_few_inputs(state: SearchState) -> bool:
    return state.network.box.lower[0].numel() <= FEW_INPUTS


STAGES: tuple[Stage, ...] = (
    first_condensed_look,  # where few ReLUs are unstable: slopes and splits on a smaller network
    optimise_slopes,  # the lower lines of all unstable ReLUs, on the whole box
    split_inputs,  # networks with few inputs: halve the box
    expand_maxima,  # max pooling becomes ReLUs
    first_look,
    second_attack,
    attack_by_milp,  # small networks: a mixed-integer program looks for thin counterexamples
    refine_inner_bounds,
    optimise_slopes,
    split_by_programs,  # small networks: subproblems are bounded by linear programs, for a share of the time
    split_condensed,  # complete: until everything is decided, or out of time
)


def decide(
    properties: Properties,
    budget: Budget,
    arithmetic: Arithmetic,
    on_result: Callable[[int, Result], None],
    carried: Sequence[CarryOver] = (),
    check: bool = True,
) -> bool:
    """Decide every property of a group, or end it when its time is over.

    Args:
        properties: the group, bounded together in batches.
        budget: what the search may spend.
        arithmetic: the execution of the network that a proof shall hold for.
        on_result: is called once per property, as soon as it is decided.
        carried: per property, what searches in other boxes around the same image left, if there were any.
        check: whether to check that the network is what it is translated into. Once is enough for one network.

    Returns:
        Whether the network was translated; it is not if its outputs for the images refute all properties.
    """
    decisions = Decisions(properties, budget, on_result)
    try:
        with torch.no_grad():
            check_images(properties, decisions)
        decisions.charge()  # what an image refutes is reported at once, and takes part in nothing else
        if decisions.open:
            carried = [carried[index] for index in sorted(decisions.open)] if carried else ()
            decisions = decisions.of_open()
            batch = PropertyBatch.of(decisions.properties, budget, arithmetic, carried, check)
            if ATTACK_FIRST and is_large(batch):
                attack_before_bounds(batch, decisions)
                batch, decisions = batch.of_properties(sorted(decisions.open)), decisions.of_open()
            if decisions.open:
                _run_stages(batch, decisions)
            decisions.charge()
            return True
        return False
    finally:
        decisions.report()  # whatever broke, what is decided is decided


def _run_stages(batch: PropertyBatch, decisions: Decisions) -> None:
    with torch.no_grad(), plain_convolutions():
        state = bound_margins(batch, decisions)
    if state is None or not decisions.open:
        return
    with plain_convolutions():
        state = begin_with_earlier_proofs(state, decisions)
    if decisions.open:
        first_attack(state, decisions)  # proves nothing, so the fastest convolutions will do
    with plain_convolutions():
        for stage in STAGES:
            if decisions.open:
                state = stage(state, decisions)
    for index, carried in enumerate(batch.carried):
        if decisions.verdicts.get(index) is not Verdict.UNSAT and state.batch.graph is batch.graph:
            carried.keep_bounds(state.network, index)
