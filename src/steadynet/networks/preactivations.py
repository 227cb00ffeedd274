"""The ReLU inputs of any ``nn.Module``: modules, functions, methods, in place or not, reused or not.

Every ReLU call is intercepted, whichever way it was written, so no module has to be known or hooked.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from steadynet.errors import UserError
from steadynet.networks.input_gradient import relu_keeping_layout
from steadynet.networks.intercept_relu import InterceptReLU


class Activations(NamedTuple):
    """What one forward pass shows: the logits and each ReLU's input, in the order they were computed."""

    logits: Tensor
    preactivations: list[Tensor]


def activations(network: nn.Module, images: Tensor) -> Activations:
    """One forward pass with all its ReLU inputs; a network without a ReLU is an error.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> [tuple(layer.shape) for layer in activations(network, torch.zeros(5, 2)).preactivations]
    [(5, 3)]
    """
    found: list[Tensor] = []

    def record(preactivation: Tensor) -> Tensor:
        found.append(preactivation)
        return relu_keeping_layout(preactivation)

    with InterceptReLU(record):
        logits = network(images)
    if not found:
        raise UserError(
            f"{type(network).__name__} has no ReLU: consistency and stability are about ReLU inputs, "
            "so use nn.ReLU, F.relu or torch.relu as its activation"
        )
    return Activations(logits, found)


def depends_on_mode(network: nn.Module) -> bool:
    """Whether the network computes something else in training than in evaluation (batch norm, dropout)."""
    kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.modules.instancenorm._InstanceNorm)
    return any(isinstance(module, kinds) for module in network.modules())
