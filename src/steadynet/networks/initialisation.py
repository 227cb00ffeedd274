"""The initial weights for certified training."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from steadynet.networks.evaluation_mode import BATCH_NORMS

CONVOLUTIONS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
WEIGHTED = (nn.Linear, *CONVOLUTIONS)
SMALLEST_SIGNAL = 2e-3  # between that of M1, which learns from these weights, and that of C1, which does not


def suits_narrow_intervals(network: nn.Module) -> bool:
    """Whether a network can learn from the initial weights of :func:`initialise_for_intervals`.

    These weights shrink the differences between images from layer to layer, each by about √(2π / fan-in). Batch norm
    undoes that. Without it, what is left must be at least ``SMALLEST_SIGNAL``: on M1 it is 0.006 and training works, on
    C1 it is 0.0009 and the regulariser of certified training outweighs the loss.

    >>> from steadynet.networks.paper import ARCHITECTURES
    >>> {name: suits_narrow_intervals(architecture.build()) for name, architecture in ARCHITECTURES.items()}
    {'M1': True, 'M2': True, 'M3': False, 'C1': False, 'C2': False, 'C3': False}
    """
    if any(isinstance(module, BATCH_NORMS) for module in network.modules()):
        return True
    return remaining_signal(network) >= SMALLEST_SIGNAL


def remaining_signal(network: nn.Module) -> float:
    """Estimate how much of the differences between images reaches the last layer: Π √(2π / fan-in) of the others.

    >>> round(remaining_signal(nn.Sequential(nn.Linear(100, 8), nn.ReLU(), nn.Linear(8, 2))), 3)
    0.251
    """
    return math.prod(math.sqrt(2 * math.pi / _fan_in(layer)) for layer in _weighted(network)[:-1])


def initialise_for_intervals(network: nn.Module) -> None:
    """Draw initial weights with which interval bounds keep their width from layer to layer (Shi et al., 2021).

    Weights are normal with standard deviation √(2π) / fan-in, and biases are zero. The last layer keeps its weights,
    because no interval is propagated behind it.

    Args:
        network: The network, which is changed in place.

    >>> network = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 2))
    >>> initialise_for_intervals(network)
    >>> round(1000 * network[0].weight.std().item(), 1), network[0].bias.abs().max().item()
    (2.5, 0.0)
    """
    for layer in _weighted(network)[:-1]:
        nn.init.normal_(layer.weight, std=math.sqrt(2 * math.pi) / _fan_in(layer))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def _weighted(network: nn.Module) -> list[Any]:
    return [module for module in network.modules() if isinstance(module, WEIGHTED)]


def _fan_in(layer: Any) -> int:
    return int(layer.weight[0].numel())
