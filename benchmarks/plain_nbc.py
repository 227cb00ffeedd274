"""The plainest PyTorch form of Algorithm 2: hooks, autograd and library calls, nothing shared or fused.

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


def plain_nbc(
    clean: tuple[Tensor, list[Tensor]], moved: tuple[Tensor, list[Tensor]], gammas: Sequence[float]
) -> Tensor:
    """Algorithm 1, averaged over the batch."""
    total: Tensor | float = 0.0
    for one, other, gamma in zip(clean[1], moved[1], gammas, strict=True):
        total = total + F.cosine_similarity(one.flatten(1), other.flatten(1)).mean() / gamma
    log_p, log_q = F.log_softmax(clean[0], 1), F.log_softmax(moved[0], 1)
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
    with torch.no_grad():
        fixed = forward_with_hooks(network, images)
    lower, upper = (images - eps).clamp(min=0), (images + eps).clamp(max=1)
    points = start
    for _ in range(steps):
        points = points.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(plain_nbc(fixed, forward_with_hooks(network, points), gammas), points)
        points = torch.min(torch.max(points - eps / 10 * gradient.sign(), lower), upper)
    clean, moved = forward_with_hooks(network, images), forward_with_hooks(network, points.detach())
    return F.cross_entropy(clean[0], labels) - beta * plain_nbc(clean, moved, gammas)
