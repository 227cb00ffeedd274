"""One group of properties from the first look to the last leaf: each stage decides what it can, cheapest first."""

from __future__ import annotations

from collections.abc import Callable

import torch

from steadynet.devices import plain_convolutions
from steadynet.verification.properties import Properties, Result
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.decisions import Ledger
from steadynet.verification.search.input_splitting import Boxes
from steadynet.verification.search.milp_attack import hand_over
from steadynet.verification.search.property_batch import Root
from steadynet.verification.search.relu_splitting import Tree

FIRST_LOOK = 32  # subproblems a property may have before its inner bounds are refined


def run_campaign(properties: Properties, budget: Budget, on_result: Callable[[int, Result], None]) -> None:
    """Decide every property, or end it when its time is over."""
    ledger = Ledger(properties, budget.timeout, on_result)
    try:
        _run_stages(Root(ledger, budget))
        ledger.charge()
    finally:
        ledger.tell()  # whatever broke, what is decided is decided


def _run_stages(root: Root) -> None:
    ledger = root.ledger
    with torch.no_grad():
        root.misclassified()
        with plain_convolutions():
            root.bound()
    if ledger.open:
        root.attack()  # proves nothing: the fastest convolutions will do
    stages: list[Callable[[], None]] = [
        root.optimise_slopes,
        lambda: Boxes(root).search(),
        lambda: Tree(root).search(FIRST_LOOK),
        lambda: hand_over(root),
        root.refine,
        root.optimise_slopes,
        lambda: Tree(root).search(),
    ]
    with plain_convolutions():
        for stage in stages:
            if ledger.open:
                stage()
