"""The initial weights for certified training."""

from __future__ import annotations

import math

from torch import nn

from steadynet.networks.evaluation_mode import BATCH_NORMS

CONVOLUTIONS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
WEIGHTED = (nn.Linear, *CONVOLUTIONS)


def suits_narrow_intervals(network: nn.Module) -> bool:
    """Whether a network can learn from the initial weights of :func:`initialise_for_intervals`: it has batch norm.

    These weights shrink the differences between images from layer to layer. Batch norm undoes that. Without it, the
    scores of C1 differ by 2e-5 between images, and the regularisers of certified training outweigh the loss.

    >>> suits_narrow_intervals(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    True
    """
    return any(isinstance(module, BATCH_NORMS) for module in network.modules())


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
    layers = [module for module in network.modules() if isinstance(module, WEIGHTED)]
    for layer in layers[:-1]:
        nn.init.normal_(layer.weight, std=math.sqrt(2 * math.pi) / layer.weight[0].numel())
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
