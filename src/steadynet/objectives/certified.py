"""What the certified training methods share: the worst case in a box, a regulariser, and their authors' recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from steadynet.attacks.pgd import maximise_cross_entropy
from steadynet.attacks.region import InputRegion
from steadynet.attacks.schedule import StepSchedule
from steadynet.bounds import Interval
from steadynet.bounds.center_radius import Ball, propagate_balls
from steadynet.bounds.margins import ibp_margins
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.objectives.adversarial import AttackingObjective
from steadynet.objectives.base import Batch, Objective, Recipe
from steadynet.objectives.l1 import l1_norm
from steadynet.plugins import setting

Total = Callable[[Tensor], Tensor]  # turns a sum over these images into one over the batch of all processes
TOLERANCE = 0.5  # τ of the warm-up regulariser: the smallest ratio that costs nothing
STEP_DROPS = (0.5, 0.8, 0.9)  # after these shares of an attack, its steps become ten times shorter


class Propagated(NamedTuple):
    """Interval bounds of every value of a network over a box.

    Attributes:
        values: One ball (centre and radius) per value of the graph; the first is the box itself.
        relus: Those of them that are inputs of ReLUs.
    """

    values: list[Ball]
    relus: list[Ball]


@dataclass(frozen=True, kw_only=True)
class CertifiedObjective(Objective):
    """Base class of objectives that minimise an upper bound of the loss over a box, by interval bounds."""

    clip: bool = setting(True, "keep the region inside [0, 1]")
    l1_weight: float = setting(0.0, "w_l1, the weight of the L1 norm of the weights")
    balance: float = setting(0.5, "weight of the regulariser (tight bounds, balanced ReLUs) that fades as ε rises")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("l1_weight", "balance"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} = {getattr(self, name)}: a weight is 0 or more")

    @classmethod
    def recipe(cls, data: str, eps: float) -> Recipe:
        """Return the recipe of Shi et al. (2021), which SABR and MTL-IBP use, too.

        Published for 70 epochs on MNIST and 160 on CIFAR-10; here as shares of the training. A training of less than
        half as many epochs has a larger learning rate in one cycle instead, as it would end before it has learned much.
        """
        cifar = data == "cifar10"
        return Recipe(
            lr=5e-4,
            schedule="drops",
            short_below=80 if cifar else 35,
            one_cycle_lr=2e-3,
            drops=(0.75, 0.875) if cifar else (0.714, 0.857),
            ramp="smooth",
            hold_share=1 / 160 if cifar else 1 / 70,
            warmup_share=80 / 160 if cifar else 20 / 70,
            gradient_clip=10.0,
            initialisation="auto",
        )

    def propagate(self, batch: Batch, region: InputRegion, shrink: float = 1.0) -> Propagated:
        """Propagate a box through the network by interval bounds, with gradients with respect to the weights.

        Args:
            batch: The batch, which has the network.
            region: The box.
            shrink: The radius after each ReLU is multiplied by this; less than 1 gives up that bounds are bounds.
        """
        graph = batch.graph
        values = propagate_balls(graph, Interval(region.lower, region.upper), shrink)
        return Propagated(values, [values[graph.source(relu)] for relu in graph.relus])

    def worst_cross_entropy(self, batch: Batch, found: Propagated) -> Tensor:
        """Compute the cross-entropy of the worst case, an upper bound of CE(f(x'), y) for every x' of the box.

        The worst case has the smallest margins y_label − y_j that interval bounds allow, for all classes j at once.
        """
        return F.cross_entropy(-ibp_margins(batch.graph, found.values, batch.targets), batch.targets)

    def penalties(self, batch: Batch, found: Propagated | None) -> dict[str, Tensor]:
        """Compute the warm-up regulariser, which fades while ε rises, and the L1 norm, if they have a weight."""
        terms = {}
        if self.balance:
            weight = self.balance * (1 - batch.share)
            cost = warmup_regulariser(found, batch.total) if weight and found else batch.images.new_zeros(())
            terms["balance"] = weight * cost
        if self.l1_weight:
            terms["l1"] = self.l1_weight * l1_norm(batch.network)
        return terms


def warmup_regulariser(found: Propagated, total: Total = lambda part: part) -> Tensor:
    """Compute the warm-up regulariser of Shi et al. (2021): tight bounds, and active and inactive ReLUs in balance.

    Each layer costs the sum of max(0, τ − ratio)/τ over three ratios, with τ = 1/2, and the result is the mean over
    the layers. The ratios are

    - tightness: the mean radius of the input, divided by that of the layer;
    - balance of means: the smaller divided by the larger of what active and inactive ReLUs contribute to the mean of
      the layer's centres, without signs;
    - balance of variances: the same for what they contribute to the variance.

    Args:
        found: The interval bounds of the batch.
        total: Turns a sum over these images into one over the whole batch, if several processes share it. The ratios
            are those of the whole batch.
    """
    input_radius = _mean(found.values[0].radius, total)
    cost = input_radius.new_zeros(())
    for layer in found.relus:
        cost = cost + _shortfall(input_radius, _mean(layer.radius, total))
        active, inactive = (_moments(layer.centre, _has_sign(layer, sign), total) for sign in (1, -1))
        if active and inactive:
            cost = cost + _shortfall(*_sorted(active.mean, -inactive.mean))
            cost = cost + _shortfall(*_sorted(active.variance, inactive.variance))
    return cost / max(len(found.relus), 1)


def _mean(tensor: Tensor, total: Total) -> Tensor:
    return total(tensor.sum()) / total(tensor.new_tensor(tensor.numel()))


def _shortfall(one: Tensor, other: Tensor) -> Tensor:
    """Compute max(0, τ − one/other)/τ."""
    return F.relu(TOLERANCE - one / other.clamp_min(1e-12)) / TOLERANCE


def _sorted(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smaller and the larger of two numbers."""
    return torch.minimum(one, other), torch.maximum(one, other)


def _has_sign(layer: Ball, sign: int) -> Tensor:
    """Return 1 where all values of the ball have this sign, otherwise 0.

    The result holds numbers, because operations on truth values are slow on a CPU.
    """
    with torch.no_grad():
        return layer.centre.mul(sign).sub_(layer.radius).sign_().clamp_min_(0)


class _Moments(NamedTuple):
    """What one group of ReLUs, active or inactive, contributes to the mean and the variance of a layer's centres."""

    mean: Tensor
    variance: Tensor


def _moments(centre: Tensor, group: Tensor, total: Total) -> _Moments | None:
    """Compute what a group contributes to the mean and the variance of a layer's centres; None for an empty group.

    With N neurons, of which G are in the group, and m the mean of all N centres c, they are Σ_G c / N and
    Σ_G (c − m)² / N.

    Args:
        centre: The centres of a layer's bounds, (batch, *layer).
        group: 1 for each neuron of the group, 0 for all others, in the same shape.
        total: Turns a sum over these images into one over the whole batch.
    """
    sums = _Sums.apply(centre, group)  # type: ignore[no-untyped-call]
    parts = torch.stack([*sums, group.sum(), centre.new_tensor(centre.numel())])
    whole, chosen, squares, size, count = total(parts)
    if not size:
        return None
    mean = whole / count
    return _Moments(chosen / count, (squares - 2 * mean * chosen + mean**2 * size) / count)


class _Sums(torch.autograd.Function):
    """The sums Σ c, Σ g·c and Σ g·c² of a tensor c and a group g of zeros and ones.

    The gradient is written out, so that it keeps the memory layout of c.
    """

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
    """Base class of certified objectives with an inner attack.

    As published for SABR, the attack of search ``paper`` takes 8 steps of ε/2, ten times shorter after 50, 80 and 90 %
    of them.
    """

    steps: int | None = setting(8, "number of steps of the inner attack (k), for search 'paper'")
    decay: bool = setting(
        True, "let the attack's step fall to a tenth after 50, 80 and 90 % of its steps, for search 'paper'"
    )

    def __post_init__(self) -> None:
        CertifiedObjective.__post_init__(self)
        AttackingObjective.__post_init__(self)

    @classmethod
    def recipe(cls, data: str, eps: float) -> Recipe:
        """Return the recipe of certified training, with precise statistics of batch norm (Mao et al., 2025)."""
        return replace(super().recipe(data, eps), batch_norm="precise")

    def paper_schedule(self, radius: float) -> StepSchedule:
        """Return the steps of search ``paper``: half the radius unless the user gives a length, then ever shorter."""
        length = radius / 2 if self.step_size is None else self.step_size
        return StepSchedule.dropping(self.steps or 0, length, STEP_DROPS if self.decay else ())

    def attacked(self, batch: Batch, region: InputRegion, reach: float) -> Tensor:
        """Return the points of the region that PGD finds from a uniform start.

        Args:
            batch: The batch.
            region: Where the points must stay.
            reach: The radius that the attack's steps are shares of.
        """
        schedule = self.schedule(reach) if batch.radius > 0 else StepSchedule(())
        with evaluation_mode(batch.network):
            return maximise_cross_entropy(batch.network, batch.targets, region, region.sample(), schedule)

    def small_box(self, batch: Batch, radius: float, share: float) -> InputRegion:
        """Return SABR's box around the point that PGD finds.

        The box has the radius τ = share · radius, and its centre lies within radius − τ of the image. SABR's authors
        give their steps as shares of ``radius``. All other searches give them as shares of what the attack may reach.
        """
        tau = share * radius
        around = InputRegion.around(batch.images, radius - tau, clip=self.clip)
        reach = radius if self.search == "paper" else radius - tau
        centres = self.attacked(batch, around, reach) if share < 1 else batch.images
        return InputRegion.around(centres, tau, clip=self.clip)


def by_setting(data: str, eps: float, values: tuple[Any, Any, Any, Any]) -> Any:
    """Choose the value of the nearest published setting: MNIST 0.1, MNIST 0.3, CIFAR-10 2/255 and 8/255.

    >>> [by_setting(*case, (1, 2, 3, 4)) for case in (("mnist", 0.1), ("digits", 0.3), ("cifar10", 8 / 255))]
    [1, 2, 4]
    """
    if data == "cifar10":
        return values[2] if eps < 5 / 255 else values[3]
    return values[0] if eps < 0.2 else values[1]
