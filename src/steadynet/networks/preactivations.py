"""Record the ReLU inputs of any ``nn.Module``.

Every ReLU call is intercepted, whether it is a module, a function or a method, in place or not. So the network needs no
hooks, and its structure does not have to be known.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from steadynet.errors import UserError
from steadynet.networks.input_gradient import relu_keeping_layout
from steadynet.networks.intercept_relu import InterceptReLU


class Activations(NamedTuple):
    """The result of one forward pass.

    Attributes:
        logits: The output of the network.
        preactivations: The input of each ReLU, in the order in which they were computed.
    """

    logits: Tensor
    preactivations: list[Tensor]


def activations(network: nn.Module, images: Tensor) -> Activations:
    """Run one forward pass and record the inputs of all ReLUs.

    Args:
        network: Any PyTorch network with at least one ReLU.
        images: The inputs, (batch, *shape).

    Returns:
        The logits and the ReLU inputs; gradients flow through both.

    Raises:
        UserError: The network has no ReLU.

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
