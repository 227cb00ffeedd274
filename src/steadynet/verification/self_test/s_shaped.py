"""Monotone networks with sigmoids and tanhs: the smallest margin lies in a known corner of the box.

A sigmoid never falls, so the construction of :mod:`steadynet.verification.self_test.monotone` holds for it as well. The
first layer is scaled, so that some networks use the curves where they are almost straight, and others where they are
flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle

from torch import nn

from steadynet.verification.self_test.architectures import ARCHITECTURES
from steadynet.verification.self_test.known import Family
from steadynet.verification.self_test.monotone import monotone
from steadynet.verification.self_test.random_numbers import power_of_ten

ACTIVATIONS: dict[str, Sequence[type[nn.Module]]] = {
    "sigmoid": (nn.Sigmoid,),
    "tanh": (nn.Tanh,),
    "mixed": (nn.Tanh, nn.ReLU, nn.Sigmoid),
}


def with_activations(kinds: Sequence[type[nn.Module]], network: nn.Module) -> None:
    """Replace the ReLUs of a network by other activations, which take turns, and scale its first layer.

    >>> network = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1), nn.LeakyReLU())
    >>> with_activations((nn.Tanh, nn.Sigmoid), network)
    >>> [type(layer).__name__ for layer in network]
    ['Linear', 'Tanh', 'Linear', 'Sigmoid']
    """
    turns = cycle(kinds)
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, (nn.ReLU, nn.LeakyReLU)):
                setattr(parent, name, next(turns)())
    first = next(module for module in network.modules() if isinstance(module, (nn.Linear, nn.Conv2d)))
    first.weight.data.mul_(power_of_ten(-1, 1.5))


FAMILY = Family(
    "s-shaped",
    {
        f"{name}, {architecture}": partial(monotone, architecture, prepare=partial(with_activations, kinds))
        for name, kinds in ACTIVATIONS.items()
        for architecture in ARCHITECTURES
    },
)
