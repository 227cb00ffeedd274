"""Where inputs and unstable ReLUs are few, a mixed-integer program finds what the search has not found yet.

HiGHS is asked for a counterexample only: its word that there is none is no proof (see ``MilpModel.minimise``).
"""

from __future__ import annotations

import torch

from steadynet.bounds.crown import OutOfTimeError
from steadynet.verification.search.milp_model import DOUBT, MilpModel
from steadynet.verification.search.property_batch import Root

MOST_INPUTS = 64
MOST_UNSTABLE = 64
LEAST_SECONDS = 0.1  # a program is given the time its property has had so far, and at least this


def hand_over(root: Root) -> None:
    """Ask HiGHS about the open margins of every property that is small enough, the worst margin first."""
    if root.backward.box.lower[0].numel() > MOST_INPUTS:
        return
    for index in sorted(root.ledger.open):
        if root.unstable(index) <= MOST_UNSTABLE:
            _ask(root, index)
            root.ledger.charge([index])


def _ask(root: Root, index: int) -> None:
    """One property: any point that HiGHS finds is tried, and nothing else of its answer is used."""
    had = root.ledger.clock.seconds[index]
    seconds = min(max(had, LEAST_SECONDS), root.budget.timeout - had)
    clock = root.ledger.clock
    region = root.properties.region[index : index + 1]
    try:
        part = root.exact().of_properties(torch.tensor([index], device="cpu"))
        program = MilpModel(part, (), lambda: clock.pending() >= seconds)
    except OutOfTimeError:
        return
    for target in root.lower[index].argsort().tolist():
        left = seconds - clock.pending()
        if root.lower[index, target] > 0 or left <= 0:
            return
        form = program.margin(root.targets[index, target])
        least = DOUBT * program.size(form)
        found = program.attempt(form, left, least, -100 * least)
        if found.point is not None:
            point = region.project(found.point[None].to(region.lower))[0]
            if root.ledger.refute(index, point, "mixed-integer program"):
                return
