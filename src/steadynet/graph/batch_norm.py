"""Batch norm in evaluation mode as one factor and one shift per channel."""

from __future__ import annotations

import torch
from torch import Tensor

from steadynet.graph.operations import Scale

_ROUNDINGS = 7  # of factor and shift: a sum and a root, two quotients or products, and a product and a sum in the shift


def batch_norm_scale(
    mean: Tensor, variance: Tensor, eps: float, weight: Tensor | None, bias: Tensor | None, axes: int
) -> Scale:
    """Write (x − mean) / √(variance + eps) · weight + bias as x · factor + shift.

    Args:
        mean: The mean of each channel.
        variance: The variance of each channel.
        eps: What is added to the variance.
        weight: The weight of each channel; None for 1.
        bias: The bias of each channel; None for 0.
        axes: How many axes come after the channels.

    >>> half = batch_norm_scale(torch.tensor([1.0]), torch.tensor([3.0]), 1.0, None, torch.tensor([2.0]), axes=0)
    >>> half.factor, half.shift, half.behind_shift
    (tensor([0.5000]), tensor([1.5000]), tensor([2.5000]))
    """
    factor = torch.rsqrt(variance + eps)
    factor = factor if weight is None else factor * weight
    shift = -mean * factor
    behind_shift = shift.abs()
    if bias is not None:
        shift, behind_shift = shift + bias, behind_shift + bias.abs()
    per_channel = (-1, *[1] * axes)
    return Scale(
        factor.view(per_channel), shift.view(per_channel), behind_shift.view(per_channel), roundings=_ROUNDINGS
    )
