"""Mixtures of conjuncts: what several constraints say together about a box, and none says alone.

A counterexample needs f₁ ≤ 0 and f₂ ≤ 0, so it needs w₁·f₁ + w₂·f₂ ≤ 0 for any weights that are not negative. Where f₁
is positive on one side of a box and f₂ on the other, a mixture of them may be positive on all of it. The weights come
from the linear bounds of the conjuncts. They are no proof: the mixture is bounded by a pass of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 12  # of the ascent of the weights
_RATE = 2.0  # of its first step, relative to the size of the linear bounds; the steps shrink like 1 / √step
_LEAST_GAIN = 0.05  # a mixture is tried if it takes this share off what the best conjunct lacks


def mixtures(coefficients: Tensor, constant: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Weights that raise the smallest value on a box of a mixture of linear bounds.

    Args:
        coefficients: (n, conjuncts, inputs), of the linear bounds.
        constant: (n, conjuncts), their constants; −∞ where there is no bound.
        lower: (n, inputs), the lower corners of the boxes.
        upper: (n, inputs), the upper corners.

    Returns:
        The weights, (n, conjuncts), which add up to 1, and where they promise more than the best conjunct alone, (n,).

    >>> slopes, constants = torch.tensor([[[2.0], [-1.0]]]), torch.tensor([[-1.0, 1.5]])  # 2x − 1 and 1.5 − x
    >>> weights, useful = mixtures(slopes, constants, torch.zeros(1, 1), torch.full((1, 1), 2.0))
    >>> (weights @ torch.tensor([2.0, -1.0])).abs() < 0.1, useful  # the mixture does not depend on x
    (tensor([True]), tensor([True]))
    """
    has_bound = constant.isfinite()
    half = (upper - lower) / 2
    at_centre = torch.where(has_bound, constant, 0.0) + (coefficients * ((lower + upper) / 2)[:, None]).sum(2)
    slope = coefficients * half[:, None]
    scale = slope.abs().sum(2).amax(1, keepdim=True).clamp_min(1e-30)
    at_centre, slope = at_centre / scale, slope / scale[:, :, None]
    alone = (at_centre - slope.abs().sum(2)).masked_fill(~has_bound, -torch.inf).amax(1)
    logits = torch.zeros_like(at_centre).masked_fill(~has_bound, -torch.inf)
    best, weights = torch.full_like(alone, -torch.inf), torch.zeros_like(at_centre)
    for step in range(STEPS):
        tried = logits.softmax(1)
        mixed = (tried[:, :, None] * slope).sum(1)
        smallest = (tried * at_centre).sum(1) - mixed.abs().sum(1)
        weights = torch.where((smallest > best)[:, None], tried, weights)
        best = torch.maximum(best, smallest)
        gradient = at_centre - (slope * mixed.sign()[:, None]).sum(2)  # at the corner where the mixture is smallest
        logits = logits + _RATE / (1 + step) ** 0.5 * (gradient - gradient.amax(1, keepdim=True))
    return weights, best - alone > _LEAST_GAIN * alone.abs()
