"""The recipe ``auto``: how to train if the user gives no learning rate, such that the training succeeds.

The paper trains 400 epochs at a small constant rate. A training of a few epochs learns little at that rate.
"""

from __future__ import annotations

from dataclasses import replace

from steadynet.objectives import Objective, Recipe
from steadynet.objectives.adversarial import AttackingObjective

SHORT_BELOW = 200  # epochs: half of the paper's
ONE_CYCLE_LR = 2e-3
CIFAR_LR = 1e-3
SMALL_LR = 4e-3  # of the paper's small networks for MNIST
SMALL = ("M1", "M2")
LARGE_LR = 5e-4  # of the paper's largest networks
LARGE = ("M3", "C3")
FINE_TUNING = 0.3  # the share of the rate that weights which are already trained can bear


def recipe_that_works(
    published: Recipe, method: type[Objective], epochs: int, *, data: str, model: str, is_fine_tuning: bool
) -> Recipe:
    """Return a recipe that suits the data set, the method and the number of epochs.

    A training of fewer than 200 epochs has a larger learning rate in one cycle. If it attacks the images, ε rises over
    the first half: at the full ε, a new network may learn nothing from attacked images.

    Args:
        published: How the authors of the method train. A learning rate in it, or a rule for few epochs, is kept.
        method: The method.
        epochs: The number of epochs.
        data: The name of the data set.
        model: The name of the network.
        is_fine_tuning: Whether the training starts from trained weights.

    >>> from steadynet.objectives.madry import Madry
    >>> recipe = recipe_that_works(Recipe(), Madry, 20, data="mnist", model="M1", is_fine_tuning=False)
    >>> recipe.schedule, recipe.lr_for("one-cycle"), recipe.warmup_share
    ('one-cycle', 0.004, 0.5)
    """
    if published.lr is not None or published.short_below or epochs >= SHORT_BELOW:
        return published
    rate = LARGE_LR if model in LARGE else SMALL_LR if model in SMALL else ONE_CYCLE_LR
    if data == "cifar10":
        rate = min(rate, CIFAR_LR)
    if is_fine_tuning:
        return replace(published, schedule="one-cycle", one_cycle_lr=FINE_TUNING * rate)
    rises = 0.5 if issubclass(method, AttackingObjective) else 0.0
    return replace(published, schedule="one-cycle", one_cycle_lr=rate, warmup_share=max(published.warmup_share, rises))
