"""Bounds on the whole box of each property, before anything is split: CROWN, optimised slopes, better inner bounds."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from steadynet.attacks.pgd import misclassified
from steadynet.bounds.crown import OutOfTimeError, functions_at_once, smaller_for
from steadynet.bounds.layer_bounds import stable_share
from steadynet.bounds.optimised import Ascent, optimise, refined
from steadynet.graph.maxima import has_maxima, without_maxima
from steadynet.graph.operations import Interval
from steadynet.verification.properties import DecidedBy, Properties
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.property_batch import PropertyBatch, SearchState
from steadynet.verification.search.rounding import confirmed

SLOPES = Ascent(iterations=12, slope_rate=0.3)
REFINEMENT = Ascent(iterations=5, slope_rate=0.4)  # further steps take off less than a thousandth of the width
REFINED_AT_ONCE = 8  # properties


def check_images(properties: Properties, decisions: Decisions) -> None:
    """Refute every property whose image itself gets a wrong label. It takes its share of one forward pass."""
    wrong = misclassified(properties.network, properties.images, properties.labels)
    for index in wrong.nonzero().flatten().tolist():
        decisions.refute(index, properties.images[index], DecidedBy.MISCLASSIFIED)


def bound_margins(batch: PropertyBatch, decisions: Decisions) -> SearchState | None:
    """Bound every margin by intervals, and by CROWN where intervals do not prove it.

    Returns:
        The first state of the search; None if time was over before the inner bounds were there.
    """
    region = batch.properties.region
    everyone, box = list(range(len(batch.properties))), Interval(region.lower, region.upper)
    try:
        network, values = batch.bounded(box, decisions.out_of_time(everyone), batch.known_bounds(box))
    except OutOfTimeError:
        decisions.charge(everyone)
        return None
    if network.relus():
        decisions.stable = list(stable_share(network.relus()).tolist())
    lower = _interval_lower(batch.margins, values[-1])
    owner, margin = (lower <= 0).nonzero(as_tuple=True)
    smaller = smaller_for(network, network.output, len(owner))
    relaxed, at_once = smaller.relaxed(), functions_at_once(smaller, network.output, batch.budget.memory)
    for rows in torch.arange(len(owner), device=owner.device).split(at_once):
        query = batch.query(owner[rows], margin[rows])
        found = relaxed.lower(query)
        lower = _better(lower, owner[rows], margin[rows], confirmed(relaxed, query, found.proved, found.value))
    if decisions.hints and not has_maxima(batch.graph):
        for index in (lower > 0).all(1).nonzero().flatten().tolist():
            decisions.hints[index].proved_at_once(network, index, float(lower[index].min()))
    return _conclude(SearchState(batch, network, lower), decisions, DecidedBy.CROWN)


def _interval_lower(margins: Tensor, output: Interval) -> Tensor:
    """Lower bounds of the margins from the output's interval, (properties, margins); −∞ where it says nothing."""
    positive, negative = margins.double().clamp_min(0), margins.double().clamp_max(0)
    lower = (positive @ output.lower.double()[:, :, None] + negative @ output.upper.double()[:, :, None]).squeeze(2)
    return torch.where((lower > 0) & lower.isfinite(), lower, -torch.inf)


def optimise_slopes(state: SearchState, decisions: Decisions) -> SearchState:
    """Bound every open margin with optimised slopes (α-CROWN)."""
    owner, margin = state.margins_of_whole(decisions)
    relaxed, lower, kept = state.network.relaxed(), state.lower, dict(state.slopes)
    for rows in torch.arange(len(owner), device=owner.device).split(state.batch.budget.batch):
        query, served = state.batch.query(owner[rows], margin[rows]), owner[rows].tolist()
        best = optimise(relaxed, query, SLOPES, enough=0.0, out_of_time=decisions.out_of_time(served))
        query = replace(query, slopes=best.slopes)
        proved = confirmed(relaxed, query, best.lower, best.value)
        lower = _better(lower, owner[rows], margin[rows], proved)
        for row in (proved <= 0).nonzero().flatten().tolist():
            kept[served[row], int(margin[rows[row]])] = best.slopes.of_function(row)
        if decisions.hints:
            for row in (proved > 0).nonzero().flatten().tolist():
                hints, which = decisions.hints[served[row]], int(margin[rows[row]])
                hints.begin(state.batch.graph, which)
                hints.leaf(which, (), best.slopes.of_function(row))
        decisions.charge(served)
    return _conclude(replace(state, lower=lower, slopes=kept), decisions, DecidedBy.OPTIMISED_SLOPES)


def refine_inner_bounds(state: SearchState, decisions: Decisions) -> SearchState:
    """Tighten the bounds of the ReLU inputs of the properties that are still open, a few properties at a time."""
    bounds = {position: Interval(*map(torch.clone, known)) for position, known in state.network.bounds.items()}
    left = torch.tensor(sorted(decisions.open - state.condensed), dtype=torch.long, device=state.lower.device)
    for some in left.split(REFINED_AT_ONCE):
        rows = some[decisions.still_open(some)]
        if not len(rows):
            continue
        out_of_time = decisions.out_of_time(rows.tolist())
        better = refined(state.network.of_properties(rows), REFINEMENT, state.batch.budget.memory, out_of_time)
        for position, known in better.bounds.items():
            bounds[position].lower[rows] = torch.maximum(bounds[position].lower[rows], known.lower)
            bounds[position].upper[rows] = torch.minimum(bounds[position].upper[rows], known.upper)
        decisions.charge(rows.tolist())
    return replace(state, network=replace(state.network, bounds=bounds))


def _better(lower: Tensor, owner: Tensor, margin: Tensor, found: Tensor) -> Tensor:
    """The bounds (properties, margins), with those found for some margins where they are larger."""
    return lower.index_put((owner, margin), torch.maximum(lower[owner, margin], found))


def _conclude(state: SearchState, decisions: Decisions, by: DecidedBy) -> SearchState:
    """Prove the properties whose margins are all positive."""
    decisions.charge()
    for index in sorted(decisions.open):
        if bool((state.lower[index] > 0).all()):
            decisions.prove(index, float(state.lower[index].min()), by)
    return state


def expand_maxima(state: SearchState, decisions: Decisions) -> SearchState:
    """Write the maxima of the network as ReLUs, which can be split, and bound the longer network."""
    graph, box = state.batch.graph, state.network.box
    if not has_maxima(graph):
        return state
    batch = replace(state.batch, graph=without_maxima(graph, state.network.shapes, box.lower))
    while decisions.open:
        everyone = sorted(decisions.open)
        try:
            with torch.no_grad():
                network, _ = batch.bounded(box, decisions.out_of_time(everyone))
        except OutOfTimeError:
            decisions.charge(everyone)  # ends those whose time is over
        else:
            decisions.charge(everyone)
            return replace(state, batch=batch, network=network, slopes={})
    return state
