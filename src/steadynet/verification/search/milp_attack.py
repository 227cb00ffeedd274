"""Where inputs and unstable ReLUs are few, a mixed-integer program looks for counterexamples that are still missing.

Only a point that replays is taken from HiGHS: its word that there is none is no proof (see ``MilpModel.minimise``).
"""

from __future__ import annotations

import torch

from steadynet.bounds.crown import OutOfTimeError
from steadynet.bounds.precision import in_float64, on_cpu
from steadynet.verification.properties import DecidedBy
from steadynet.verification.search.decisions import Decisions
from steadynet.verification.search.milp_model import ZERO_SHARE, MilpModel
from steadynet.verification.search.property_batch import SearchState

MOST_INPUTS = 64
MOST_UNSTABLE = 64
LEAST_SECONDS = 0.1  # a program gets as much time as its property has had so far, and at least this


def attack_by_milp(state: SearchState, decisions: Decisions) -> SearchState:
    """Attack every property that is small enough by a mixed-integer program."""
    if state.network.box.lower[0].numel() <= MOST_INPUTS and state.batch.is_piecewise_linear:
        for index in sorted(decisions.open):
            if state.unstable_relus(index) <= MOST_UNSTABLE:
                _attack(state, decisions, index)
                decisions.charge([index])
    return state


def _attack(state: SearchState, decisions: Decisions, index: int) -> None:
    """Minimise the open margins of one property, the worst one first, until a point replays as a counterexample."""
    spent = decisions.time.seconds[index]
    seconds = min(max(spent, LEAST_SECONDS), decisions.time.left(index))
    region = state.batch.properties.region[index : index + 1]
    rows = torch.tensor([index], device=state.lower.device)
    try:
        network = on_cpu(in_float64(state.network.of_properties(rows)))
        model = MilpModel(network, (), lambda: decisions.time.pending() >= seconds)
    except OutOfTimeError:
        return
    for margin in state.lower[index].argsort().tolist():
        left = seconds - decisions.time.pending()
        if state.lower[index, margin] > 0 or left <= 0:
            return
        form = model.margin(state.batch.margins[index, margin])
        least = ZERO_SHARE * model.size(form)
        try:
            found = model.attempt(form, left, least, -100 * least)
        except OutOfTimeError:
            return
        if found.point is not None:
            point = region.project(found.point[None].to(region.lower))[0]
            if decisions.refute(index, point, DecidedBy.MILP_ATTACK):
                return
