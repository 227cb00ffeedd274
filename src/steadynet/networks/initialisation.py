"""First weights for certified training."""

from __future__ import annotations

import math

from torch import nn

WEIGHTED = (nn.Linear, nn.modules.conv._ConvNd)


def initialise_for_intervals(network: nn.Module) -> None:
    """Normal weights of deviation √(2π)/fan-in and no biases: interval bounds then keep their width (Shi et al., 2021).

    The last layer keeps its weights: nothing is propagated behind it.

    >>> network = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 2))
    >>> initialise_for_intervals(network)
    >>> round(1000 * network[0].weight.std().item(), 1), network[0].bias.abs().max().item()
    (2.5, 0.0)
    """
    layers = [module for module in network.modules() if isinstance(module, WEIGHTED)]
    for layer in layers[:-1]:
        nn.init.normal_(layer.weight, std=math.sqrt(2 * math.pi) / layer.weight[0].numel())
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
