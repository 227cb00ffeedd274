"""Move weights against a loss for a while, as adversarial weight perturbation does (Wu et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from steadynet.networks.grafting import weight_matrices


@contextmanager
def perturbed_weights(
    network: nn.Module,
    loss: Callable[[], Tensor],
    share: float,
    sum_gradients: Callable[[list[nn.Parameter]], None] = lambda parameters: None,
) -> Iterator[None]:
    """Move each weight matrix w by share · ‖w‖ · g/‖g‖ while the context is active, with the gradient g of a loss.

    Args:
        network: The network. At the end, its weights are bit for bit as before, and it has no gradients.
        loss: Computes the loss of this process's slice of the batch, with the weight of the slice.
        share: γ. With 0, nothing is computed or moved.
        sum_gradients: Replaces the gradients of parameters by their sums over all processes.

    >>> network = nn.Linear(2, 1, bias=False)
    >>> _ = network.weight.data.copy_(torch.tensor([[3.0, 4.0]]))
    >>> with perturbed_weights(network, lambda: network.weight[0, 0], 0.1):
    ...     network.weight.tolist()
    [[3.5, 4.0]]
    >>> network.weight.tolist()
    [[3.0, 4.0]]
    """
    if not share:
        yield
        return
    network.zero_grad()
    loss().backward()
    sum_gradients(list(network.parameters()))
    weights = [weight for weight in weight_matrices(network) if weight.grad is not None]
    before = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for weight in weights:
            assert weight.grad is not None
            weight.add_(weight.grad, alpha=share * float(weight.norm() / weight.grad.norm().clamp_min(1e-12)))
    network.zero_grad()
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, kept in zip(weights, before, strict=True):
                weight.copy_(kept)
