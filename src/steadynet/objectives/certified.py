"""What the certified methods share: the worst case of a box, its regulariser, and how their authors train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from steadynet.attacks.pgd import maximise_cross_entropy
from steadynet.attacks.region import InputRegion
from steadynet.bounds import Interval
from steadynet.bounds.center_radius import Ball, propagate_balls
from steadynet.bounds.margins import ibp_margins
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.objectives.adversarial import AttackingObjective
from steadynet.objectives.base import Batch, Objective, Recipe
from steadynet.objectives.rs import l1_norm
from steadynet.plugins import setting

Total = Callable[[Tensor], Tensor]
TOLERANCE = 0.5  # of the warm-up regulariser: what the two ratios should reach
STEP_DROPS = (0.5, 0.8, 0.9)  # the shares of an attack after which its step falls to a tenth


class Propagated(NamedTuple):
    """A box carried through the network: a ball around every value, and the ReLU inputs among them."""

    values: list[Ball]
    relus: list[Ball]


@dataclass(frozen=True, kw_only=True)
class CertifiedObjective(Objective):
    """An objective with the cross-entropy of the worst logits that interval bounds allow in a box."""

    clip: bool = setting(True, "keep the region inside [0, 1]")
    l1_weight: float = setting(0.0, "w_l1, the weight of the L1 norm of the weights")
    balance: float = setting(0.5, "weight of the regulariser (tight bounds, balanced ReLUs) that fades as ε rises")

    def __post_init__(self) -> None:
        for name in ("l1_weight", "balance"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} = {getattr(self, name)}: a weight is 0 or more")

    @classmethod
    def recipe(cls, data: str, eps: float) -> Recipe:
        """Shi et al. (2021), as SABR and MTL-IBP use it: 70 epochs on MNIST, 160 on CIFAR-10, as shares of them."""
        cifar = data == "cifar10"
        return Recipe(
            lr=5e-4,
            schedule="drops",
            drops=(0.75, 0.875) if cifar else (0.714, 0.857),
            ramp="smooth",
            hold_share=1 / 160 if cifar else 1 / 70,
            warmup_share=80 / 160 if cifar else 20 / 70,
            gradient_clip=10.0,
            initialisation="ibp",
        )

    def propagate(self, batch: Batch, region: InputRegion) -> Propagated:
        """The region through the network by interval bounds, differentiable in the weights."""
        graph = batch.graph
        values = propagate_balls(graph, Interval(region.lower, region.upper))
        return Propagated(values, [values[graph.source(relu)] for relu in graph.relus])

    def worst_cross_entropy(self, batch: Batch, found: Propagated) -> Tensor:
        """CE of the worst-case logits, an upper bound of CE(f(x'), y) over the region."""
        return F.cross_entropy(-ibp_margins(batch.graph, found.values, batch.targets), batch.targets)

    def penalties(self, batch: Batch, found: Propagated | None) -> dict[str, Tensor]:
        """The warm-up regulariser, while ε rises, and the L1 norm, where they have a weight."""
        terms = {}
        if self.balance:
            weight = self.balance * (1 - batch.share)
            cost = warmup_regulariser(found, batch.total) if weight and found else batch.images.new_zeros(())
            terms["balance"] = weight * cost
        if self.l1_weight:
            terms["l1"] = self.l1_weight * l1_norm(batch.network)
        return terms


def warmup_regulariser(found: Propagated, total: Total = lambda part: part) -> Tensor:
    """Shi et al.'s regulariser: layers' intervals no wider than the input's, active and inactive ReLUs in balance.

    A layer costs max(0, τ − ratio)/τ for each of three ratios: mean half width of the input to the layer's, and the
    smaller to the larger of the active and inactive ReLUs' mean centre and of their variance; τ = 1/2. These are of
    the whole batch: ``total`` makes a sum over its rows here one over all, where several processes share a batch.
    """
    width = _mean(found.values[0].radius, total)
    cost = width.new_zeros(())
    for layer in found.relus:
        cost = cost + _shortfall(width, _mean(layer.radius, total))
        active, inactive = (_moments(layer.centre, _positive(layer, sign), total) for sign in (1, -1))
        if active and inactive:
            cost = cost + _shortfall(*_sorted(active[0], -inactive[0])) + _shortfall(*_sorted(active[1], inactive[1]))
    return cost / max(len(found.relus), 1)


def _mean(tensor: Tensor, total: Total) -> Tensor:
    return total(tensor.sum()) / total(tensor.new_tensor(tensor.numel()))


def _shortfall(one: Tensor, other: Tensor) -> Tensor:
    return F.relu(TOLERANCE - one / other.clamp_min(1e-12)) / TOLERANCE


def _sorted(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    return torch.minimum(one, other), torch.maximum(one, other)


def _positive(layer: Ball, sign: int) -> Tensor:
    """1 where sign · value is positive all over the ball, else 0; as numbers, since truth values are slow on a CPU."""
    with torch.no_grad():
        return layer.centre.mul(sign).sub_(layer.radius).sign_().clamp_min_(0)


def _moments(centre: Tensor, group: Tensor, total: Total) -> tuple[Tensor, Tensor] | None:
    """Sums over a group, a neuron of all: its centres, their squared distances to the mean of all; None if empty."""
    sums = _Sums.apply(centre, group)  # type: ignore[no-untyped-call]
    parts = torch.stack([*sums, group.sum(), centre.new_tensor(centre.numel())])
    whole, chosen, squares, size, count = total(parts)
    if not size:
        return None
    mean = whole / count
    return chosen / count, (squares - 2 * mean * chosen + mean**2 * size) / count


class _Sums(torch.autograd.Function):
    """Σ c, Σ g·c and Σ g·c² of a tensor c and a group g of 0 and 1, with a gradient that keeps the memory layout."""

    @staticmethod
    def forward(ctx: Any, centre: Tensor, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        chosen = centre * group
        ctx.save_for_backward(chosen, group)
        return centre.sum(), chosen.sum(), chosen.square().sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_whole: Tensor, of_total: Tensor, of_squares: Tensor) -> tuple[Tensor, None]:
        chosen, group = ctx.saved_tensors
        return (chosen * (2 * of_squares)).add_(group * of_total).add_(of_whole), None


@dataclass(frozen=True, kw_only=True)
class AttackingCertifiedObjective(CertifiedObjective, AttackingObjective):
    """A certified objective with an inner attack: 8 steps of ε/2 that fall to a tenth at 50, 80 and 90 %."""

    steps: int = setting(8, "steps of the inner attack (k)")
    decay: bool = setting(True, "let the attack's step fall to a tenth after 50, 80 and 90 % of its steps")

    def __post_init__(self) -> None:
        CertifiedObjective.__post_init__(self)
        AttackingObjective.__post_init__(self)

    def step_length(self, radius: float) -> float:
        """α: the step given, else half the radius."""
        return radius / 2 if self.step_size is None else self.step_size

    def step_lengths(self, radius: float) -> list[float]:
        """α of every step."""
        drops = [sum(step / self.steps >= drop for drop in STEP_DROPS) * self.decay for step in range(self.steps)]
        return [self.step_length(radius) * 0.1**drop for drop in drops]

    def attacked(self, batch: Batch, region: InputRegion) -> Tensor:
        """The points of the region that PGD finds from a uniform start, in evaluation mode."""
        with evaluation_mode(batch.network):
            return maximise_cross_entropy(
                batch.network,
                batch.targets,
                region,
                region.sample(),
                steps=self.steps if batch.radius > 0 else 0,
                step_size=self.step_lengths(batch.radius),
            )


def by_setting(data: str, eps: float, values: tuple[Any, Any, Any, Any]) -> Any:
    """The value for the published setting nearest to this one: MNIST 0.1, MNIST 0.3, CIFAR-10 2/255 and 8/255.

    >>> [by_setting(*case, (1, 2, 3, 4)) for case in (("mnist", 0.1), ("digits", 0.3), ("cifar10", 8 / 255))]
    [1, 2, 4]
    """
    if data == "cifar10":
        return values[2] if eps < 5 / 255 else values[3]
    return values[0] if eps < 0.2 else values[1]
