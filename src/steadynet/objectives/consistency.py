"""Neuron behaviour consistency (NBC), the paper's Algorithm 1, and the attack of its Algorithm 2.

The paper calls a neuron consistent between x and x' if its ReLU input has the same sign at both (equation 3). Signs
have no useful gradient, so Algorithm 1 compares directions instead. Let v_i be the ReLU inputs of layer i and γ_i the
weight of the layer. Then

    NBC(f, x, x') = Σ_i cos(v_i(x), v_i(x')) / γ_i − KL(p(x) ‖ p(x')),   p = softmax(f).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from steadynet.attacks.pgd import StepRule, descend, follow
from steadynet.attacks.region import InputRegion
from steadynet.attacks.schedule import StepSchedule
from steadynet.errors import UserError
from steadynet.networks.input_gradient import CHANNELS_LAST, like_layout, relu_backward
from steadynet.networks.layer_chain import LayerChain
from steadynet.networks.preactivations import Activations

GammaScheme = Literal["one", "rank-power", "rank-size"]
_SMALLEST_NORM = 1e-8  # as in F.cosine_similarity


def layer_weights(sizes: Sequence[int], gamma: GammaScheme | Sequence[float]) -> list[float]:
    """Return γ_i, the divisor of each layer's cosine in Algorithm 1, line 6.

    Args:
        sizes: The number m_i of neurons in each ReLU layer.
        gamma: ``one`` for γ_i = 1, ``rank-power`` for γ_i = 2^r_i (the paper's choice), ``rank-size`` for
            γ_i = r_i · m_i, or one number per layer. The rank r_i is 1 for the smallest layer. Layers of equal size
            share a rank.

    Raises:
        UserError: ``gamma`` has another number of values than the network has ReLU layers.

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
    """Compute NBC(f, x, x') of each image (Algorithm 1). Gradients flow to both forward passes.

    Args:
        clean: The forward pass at x, from :func:`~steadynet.networks.preactivations.activations`.
        moved: The forward pass at the neighbour x'.
        gamma: The weights of the layers, see :func:`layer_weights`.

    Returns:
        One number per image, shape (batch,). It is largest, Σ_i 1/γ_i, if both passes are equal.

    Raises:
        UserError: ``gamma`` has another number of values than the network has ReLU layers.

    >>> from steadynet.networks.preactivations import activations
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> clean = activations(model, torch.rand(3, 4))
    >>> consistency(clean, clean, gamma=[2.0, 4.0])
    tensor([0.7500, 0.7500, 0.7500], grad_fn=...)
    """
    weights = _weights_for(clean, gamma)
    # Line 8 comes first: s ← −KL(p(x) ‖ p(x')).
    total = -kl_divergence(clean.logits, moved.logits)
    # Lines 2 to 7: s ← s + cos(v, v') / γ_i for every hidden layer, v and v' being its ReLU inputs at x and x'.
    for v, v_moved, weight in zip(clean.preactivations, moved.preactivations, weights, strict=True):
        total = total + _cosine(_rows(v), _rows(like_layout(v_moved, v))) / weight
    return total


def kl_divergence(logits: Tensor, other: Tensor) -> Tensor:
    """Compute KL(softmax(logits) ‖ softmax(other)) of each image (equation 6), shape (batch,)."""
    log_p, log_q = F.log_softmax(logits, 1), F.log_softmax(other, 1)
    return (log_p.exp() * (log_p - log_q)).sum(1)


def most_inconsistent_neighbour(
    network: nn.Module,
    clean: Activations,
    region: InputRegion,
    gamma: GammaScheme | Sequence[float],
    schedule: StepSchedule,
    rule: StepRule = "sign",
) -> Tensor:
    """Find a neighbour x' of each image at which NBC(f, x, x') is small (Algorithm 2, lines 1 to 6).

    Args:
        network: The network, in evaluation mode.
        clean: The forward pass at the images x. It is held fixed: no gradient flows to it.
        region: Where the neighbours must stay.
        gamma: The weights of the layers, see :func:`layer_weights`.
        schedule: The length α of each of the k steps.
        rule: Whether a step follows the sign of the gradient or, as the paper writes it, the gradient itself.

    Returns:
        One neighbour per image, (batch, *image).

    Raises:
        UserError: ``gamma`` has another number of values than the network has ReLU layers.

    >>> from steadynet.networks.preactivations import activations
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> images = torch.rand(3, 4)
    >>> region, clean = InputRegion.around(images, 0.3), activations(model, images)
    >>> found = most_inconsistent_neighbour(model, clean, region, "rank-power", StepSchedule.equal(10, 0.03))
    >>> bool((consistency(clean, activations(model, found), "rank-power") < 0.5).all())  # 0.5 at the images themselves
    True
    """
    weights = _weights_for(clean, gamma)
    # What does not change from step to step is computed once: v/|v| of each layer, and p(x).
    directions = [_unit(layer.detach()) for layer in clean.preactivations]
    probabilities = F.softmax(clean.logits.detach(), 1)
    start = region.sample()  # line 1: a random start in the region
    # Lines 2 to 6: k steps x' ← clip(x' − α · step), the step from ∂NBC/∂x'.
    chain = LayerChain.of(network, start)
    if chain is not None:
        return follow(_written_gradient(chain, directions, probabilities, weights), region, start, schedule, rule)

    cosines: list[Tensor] = []  # of the layers of the current forward pass, each divided by γ_i

    def relu(preactivation: Tensor) -> Tensor:
        """Compute a ReLU together with its layer's cosine, so that both share one backward pass."""
        layer = len(cosines)
        directions[layer] = like_layout(directions[layer], preactivation)  # copied at the first step only
        activation, cosine = _ReLUWithCosine.apply(preactivation, directions[layer])  # type: ignore[no-untyped-call]
        cosines.append(cosine / weights[layer])
        return activation

    def nbc_without_constant(points: Tensor) -> Tensor:
        """Compute NBC(f, x, x') without Σ p(x) log p(x), which does not depend on x'."""
        cosines.clear()
        logits = network(points)
        return torch.stack(cosines).sum(0) + (probabilities * F.log_softmax(logits, 1)).sum(1)

    return descend(
        nbc_without_constant,
        region,
        start,
        steps=len(schedule.lengths),
        step_size=schedule.lengths,
        momentum=schedule.momentum,
        rule=rule,
        relu=relu,
    )


def _written_gradient(
    chain: LayerChain, directions: list[Tensor], probabilities: Tensor, weights: Sequence[float]
) -> Callable[[Tensor], Tensor]:
    """Return the function x' ↦ ∂NBC/∂x' of a plain chain of layers: the same as autograd's, with fewer operations.

    At the logits it is p(x) − p(x'). At the input v' of a ReLU it gains ∂cos/∂v' = (d − cos · v'/|v'|) / |v'|, divided
    by γ, where d = v/|v| is the direction at x.
    """

    def gradient(points: Tensor) -> Tensor:
        passed = chain.forward(points)

        def add_cosine(layer: int, result: Tensor) -> None:
            direction = directions[layer] = like_layout(directions[layer], result)  # copied at the first step only
            preactivation = like_layout(passed.preactivations[layer], result)
            rows = _rows(preactivation)
            inverse = _inverse_norm(rows)
            cosine = (rows * _rows(direction)).sum(1) * inverse
            _add_cosine_gradient(result, preactivation, direction, inverse / weights[layer], inverse * cosine)

        return chain.input_gradient(passed, probabilities - F.softmax(passed.logits, 1), add_cosine)

    return gradient


def _weights_for(clean: Activations, gamma: GammaScheme | Sequence[float]) -> list[float]:
    return layer_weights([layer[0].numel() for layer in clean.preactivations], gamma)


def _rows(layer: Tensor) -> Tensor:
    """View a layer as (batch, neurons), in the order of its memory: a cosine does not depend on that order."""
    if layer.dim() == 4 and layer.is_contiguous(memory_format=CHANNELS_LAST):
        return layer.permute(0, 2, 3, 1).flatten(1)
    return layer.flatten(1)


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    return _Cosine.apply(one, other)  # type: ignore[no-untyped-call]


class _Cosine(torch.autograd.Function):
    """The cosine similarity of rows (Algorithm 1, line 5): v · v' / (|v| · |v'|).

    Its gradient is written out, which saves memory and time: ∂cos/∂v = (v'/|v'| − cos · v/|v|) / |v|.
    """

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
    """A ReLU, and the cosine of its input with a fixed direction of length 1, with one backward pass for both."""

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
        _add_cosine_gradient(result, preactivation, direction, of_cosine * inverse, inverse * cosine)
        return result, None


def _add_cosine_gradient(
    result: Tensor, preactivation: Tensor, direction: Tensor, scale: Tensor, along: Tensor
) -> None:
    """Add scale · (d − along · v) to each row of the gradient of a ReLU's input v, in place; all in one layout."""
    rows = _rows(result)
    rows.addcmul_(_rows(direction), scale[:, None])
    rows.addcmul_(_rows(preactivation), (-scale * along)[:, None])


def _unit(layer: Tensor) -> Tensor:
    """Scale each image's ReLU inputs to length 1; the shape stays the same."""
    scale = _inverse_norm(layer.flatten(1))
    return layer * scale.view(-1, *[1] * (layer.dim() - 1))


def _inverse_norm(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1).clamp_min(_SMALLEST_NORM).reciprocal()
