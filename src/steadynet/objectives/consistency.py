"""Neuron behaviour consistency (Algorithms 1 and 2 of the paper).

NBC(f, x, x') = Σ_layers cos(v_i(x), v_i(x')) / γ_i − KL(p(x) ‖ p(x')), v_i being the ReLU inputs of layer i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from steadynet.attacks.pgd import StepRule, descend
from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.networks.input_gradient import CHANNELS_LAST, like_layout, relu_backward
from steadynet.networks.preactivations import Activations

GammaScheme = Literal["one", "rank-power", "rank-size"]
_TINY = 1e-8  # the smallest norm, as in F.cosine_similarity


def layer_weights(sizes: Sequence[int], gamma: GammaScheme | Sequence[float]) -> list[float]:
    """γ_i a layer, from the layers' sizes m_i and ranks r_i (1 for the smallest; equal sizes share a rank).

    >>> layer_weights([3136, 1568, 100], "rank-power"), layer_weights([64, 512, 512], "rank-size")
    ([8.0, 4.0, 2.0], [64.0, 1024.0, 1024.0])
    """
    if not isinstance(gamma, str):
        if len(gamma) != len(sizes):
            raise UserError(f"gamma has {len(gamma)} numbers, but the network has {len(sizes)} ReLU layers")
        return [float(value) for value in gamma]
    rank = {size: position for position, size in enumerate(sorted(set(sizes)), start=1)}
    if gamma == "one":
        return [1.0] * len(sizes)
    if gamma == "rank-power":
        return [2.0 ** rank[size] for size in sizes]
    return [float(rank[size] * size) for size in sizes]


def consistency(clean: Activations, moved: Activations, gamma: GammaScheme | Sequence[float]) -> Tensor:
    """Algorithm 1: NBC(f, x, x') an example, shape (batch,); gradients flow to both passes."""
    weights = _weights_for(clean, gamma)
    total = -kl_divergence(clean.logits, moved.logits)
    for one, other, weight in zip(clean.preactivations, moved.preactivations, weights, strict=True):
        total = total + _cosine(_rows(one), _rows(like_layout(other, one))) / weight
    return total


def kl_divergence(logits: Tensor, other: Tensor) -> Tensor:
    """KL(softmax(logits) ‖ softmax(other)) an example, shape (batch,)."""
    log_p, log_q = F.log_softmax(logits, 1), F.log_softmax(other, 1)
    return (log_p.exp() * (log_p - log_q)).sum(1)


def most_inconsistent_neighbour(
    network: nn.Module,
    clean: Activations,
    region: InputRegion,
    gamma: GammaScheme | Sequence[float],
    *,
    steps: int,
    step_size: float,
    rule: StepRule,
) -> Tensor:
    """The loop of Algorithm 2: an x' of the region with a small NBC(f, x, x'), from a uniform start.

    The fixed side, ``clean``, is normalised once; each ReLU and its cosine then share one backward pass.
    """
    weights = _weights_for(clean, gamma)
    directions = [_unit(layer.detach()) for layer in clean.preactivations]
    probabilities = F.softmax(clean.logits.detach(), 1)

    found: list[Tensor] = []

    def relu(preactivation: Tensor) -> Tensor:
        layer = len(found)
        directions[layer] = like_layout(directions[layer], preactivation)  # moved once, at the first step
        activation, cosine = _ReLUWithCosine.apply(preactivation, directions[layer])  # type: ignore[no-untyped-call]
        found.append(cosine / weights[layer])
        return activation

    def nbc_up_to_a_constant(points: Tensor) -> Tensor:
        found.clear()
        logits = network(points)
        return torch.stack(found).sum(0) + (probabilities * F.log_softmax(logits, 1)).sum(1)

    return descend(
        nbc_up_to_a_constant,
        region,
        region.sample(),
        steps=steps,
        step_size=step_size,
        rule=rule,
        relu=relu,
    )


def _weights_for(clean: Activations, gamma: GammaScheme | Sequence[float]) -> list[float]:
    return layer_weights([layer[0].numel() for layer in clean.preactivations], gamma)


def _rows(layer: Tensor) -> Tensor:
    """(batch, neurons), a view in memory order: a cosine does not care about the order of its neurons."""
    if layer.dim() == 4 and layer.is_contiguous(memory_format=CHANNELS_LAST):
        return layer.permute(0, 2, 3, 1).flatten(1)
    return layer.flatten(1)


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    return _Cosine.apply(one, other)  # type: ignore[no-untyped-call]


class _Cosine(torch.autograd.Function):
    """Cosine similarity of rows, with its gradient written out: d cos/dv = (û' − cos·û)/|v|."""

    @staticmethod
    def forward(ctx: Any, one: Tensor, other: Tensor) -> Tensor:
        inverse, inverse_other = _inverse_norm(one), _inverse_norm(other)
        cosine = (one * other).sum(1) * inverse * inverse_other
        ctx.save_for_backward(one, other, inverse, inverse_other, cosine)
        return cosine

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        one, other, inverse, inverse_other, cosine = ctx.saved_tensors
        mixed = (gradient * inverse * inverse_other)[:, None]

        def side(own: Tensor, opposite: Tensor, own_inverse: Tensor) -> Tensor:
            return (opposite * mixed).addcmul_(own, (-gradient * cosine * own_inverse**2)[:, None])

        return side(one, other, inverse), side(other, one, inverse_other)


class _ReLUWithCosine(torch.autograd.Function):
    """ReLU and the cosine of its input with a fixed unit direction, in one backward pass."""

    @staticmethod
    def forward(ctx: Any, preactivation: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        activation = torch.relu(preactivation)
        preactivation, direction = like_layout(preactivation, activation), like_layout(direction, activation)
        rows = _rows(preactivation)
        inverse = _inverse_norm(rows)
        cosine = (rows * _rows(direction)).sum(1) * inverse
        ctx.save_for_backward(preactivation, activation, direction, inverse, cosine)
        return activation, cosine

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, of_cosine: Tensor) -> tuple[Tensor, None]:
        preactivation, activation, direction, inverse, cosine = ctx.saved_tensors
        result = like_layout(relu_backward(gradient, activation), activation)
        scale = of_cosine * inverse
        rows = _rows(result)
        rows.addcmul_(_rows(direction), scale[:, None])
        rows.addcmul_(_rows(preactivation), (-scale * inverse * cosine)[:, None])
        return result, None


def _unit(layer: Tensor) -> Tensor:
    """The layer, each example scaled to length 1, in its shape."""
    scale = _inverse_norm(layer.flatten(1))
    return layer * scale.view(-1, *[1] * (layer.dim() - 1))


def _inverse_norm(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1).clamp_min(_TINY).reciprocal()
