"""The plainest PyTorch form of Algorithms 1 and 2, line by line: hooks, autograd, library calls, nothing shared.

The reference for both the values (tested) and the speed (``training_step.py``) of the product's own form.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def forward_with_hooks(network: nn.Module, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits and the input of every ``nn.ReLU``."""
    found: list[Tensor] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
        for module in network.modules()
        if isinstance(module, nn.ReLU)
    ]
    logits = network(images)
    for hook in hooks:
        hook.remove()
    return logits, found


def plain_nbc(network: nn.Module, images: Tensor, moved: Tensor, gammas: Sequence[float]) -> Tensor:
    """Algorithm 1, averaged over the batch: it takes the network and both inputs, as the paper writes it."""
    clean_logits, clean_layers = forward_with_hooks(network, images)
    moved_logits, moved_layers = forward_with_hooks(network, moved)
    total: Tensor | float = 0.0
    for one, other, gamma in zip(clean_layers, moved_layers, gammas, strict=True):
        total = total + F.cosine_similarity(one.flatten(1), other.flatten(1)).mean() / gamma
    log_p, log_q = F.log_softmax(clean_logits, 1), F.log_softmax(moved_logits, 1)
    return total - F.kl_div(log_q, log_p, log_target=True, reduction="batchmean")


def plain_nbc_loss(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    start: Tensor,
    *,
    eps: float,
    gammas: Sequence[float],
    beta: float = 1.0,
    steps: int = 10,
) -> Tensor:
    """Algorithm 2 with sign steps of ε/10 from ``start``, inside the ε-box and [0, 1]."""
    lower, upper = (images - eps).clamp(min=0), (images + eps).clamp(max=1)
    points = start
    for _ in range(steps):
        points = points.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(plain_nbc(network, images, points, gammas), points)
        points = torch.min(torch.max(points - eps / 10 * gradient.sign(), lower), upper)
    return F.cross_entropy(network(images), labels) - beta * plain_nbc(network, images, points.detach(), gammas)
