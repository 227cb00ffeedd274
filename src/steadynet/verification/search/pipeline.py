"""The stages of the search, cheapest first: each decides the properties it can and hands on what it learned."""

from __future__ import annotations

from collections.abc import Callable

import torch

from steadynet.devices import plain_convolutions
from steadynet.graph.rounding import Arithmetic
from steadynet.verification.properties import Properties, Result
from steadynet.verification.search.attack import attack_margins
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.condensed_splitting import split_condensed
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.input_splitting import split_inputs
from steadynet.verification.search.milp_attack import attack_by_milp
from steadynet.verification.search.program_splitting import split_by_programs
from steadynet.verification.search.property_batch import PropertyBatch, SearchState
from steadynet.verification.search.relu_splitting import split_relus
from steadynet.verification.search.root_bounds import (
    bound_margins,
    check_images,
    expand_maxima,
    optimise_slopes,
    refine_inner_bounds,
)

FIRST_LOOK = 32  # subproblems that a property may have before its inner bounds are refined

Stage = Callable[[SearchState, Decisions], SearchState]


def first_look(state: SearchState, decisions: Decisions) -> SearchState:
    """Split the ReLUs of every property a few times."""
    return split_relus(state, decisions, FIRST_LOOK)


STAGES: tuple[Stage, ...] = (
    optimise_slopes,  # the lower lines of all unstable ReLUs, on the whole box
    split_inputs,  # networks with few inputs: halve the box
    expand_maxima,  # max pooling becomes ReLUs
    first_look,
    attack_by_milp,  # small networks: a mixed-integer program looks for thin counterexamples
    refine_inner_bounds,
    optimise_slopes,
    split_by_programs,  # small networks: subproblems are bounded by linear programs, for a share of the time
    split_condensed,  # complete: until everything is decided, or out of time
)


def decide(
    properties: Properties, budget: Budget, arithmetic: Arithmetic, on_result: Callable[[int, Result], None]
) -> None:
    """Decide every property of a group, or end it when its time is over.

    Args:
        properties: the group, bounded together in batches.
        budget: what the search may spend.
        arithmetic: the execution of the network that a proof shall hold for.
        on_result: is called once per property, as soon as it is decided.
    """
    decisions = Decisions(properties, budget, on_result)
    try:
        with torch.no_grad():
            check_images(properties, decisions)
        decisions.charge()  # what an image refutes is reported at once, and takes part in nothing else
        if decisions.open:
            decisions = decisions.of_open()
            _run_stages(PropertyBatch.of(decisions.properties, budget, arithmetic), decisions)
            decisions.charge()
    finally:
        decisions.report()  # whatever broke, what is decided is decided


def _run_stages(batch: PropertyBatch, decisions: Decisions) -> None:
    with torch.no_grad(), plain_convolutions():
        state = bound_margins(batch, decisions)
    if state is None or not decisions.open:
        return
    attack_margins(state, decisions)  # proves nothing, so the fastest convolutions will do
    with plain_convolutions():
        for stage in STAGES:
            if decisions.open:
                state = stage(state, decisions)
