"""TAPS (Mao et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from steadynet.attacks.pgd import descend
from steadynet.attacks.region import InputRegion
from steadynet.bounds import Interval
from steadynet.errors import UserError
from steadynet.graph.graph import Graph
from steadynet.objectives.base import Batch
from steadynet.objectives.certified import CertifiedObjective, Propagated, by_setting
from steadynet.plugins import setting

EDGE = 0.5  # c of the published gradient: the share of a latent box's width in which a point moves with that end


@dataclass(frozen=True, kw_only=True)
class TAPS(CertifiedObjective):
    """Interval bounds through the first layers, then an attack inside the latent box; times the loss of IBP.

    The network is cut behind a ReLU layer. Interval bounds of the first part give a latent box. For each wrong class,
    PGD in that box looks for the smallest margin that the second part gives. L_TAPS is the cross-entropy of these
    margins, and the loss is L_TAPS · L_IBP. Without a second part, it is L_IBP.
    """

    name = "taps"
    summary = "ibp through the first layers, an attack through the last ones"

    attacked_relus: int = setting(1, "how many of the last ReLU layers the attack sees; 0 is ibp")
    latent_steps: int = setting(10, "number of steps of the latent attack")
    latent_step_share: float = setting(0.5, "step of the latent attack as a share of half the box's width")
    taps_weight: float = setting(4.0, "w, how much more the gradient of L_TAPS counts than that of L_IBP")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("attacked_relus", "latent_steps"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} = {getattr(self, name)}: this is 0 or more")
        for name in ("latent_step_share", "taps_weight"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} = {getattr(self, name)}: this is larger than 0")

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return the steps and weights of the four published settings, with SABR's L1 weights.

        The cuts were published for a network of seven layers only.
        """
        return {
            "latent_steps": by_setting(data, eps, (10, 5, 8, 10)),
            "taps_weight": by_setting(data, eps, (4.0, 4.0, 4.0, 2.0)),
            "l1_weight": by_setting(data, eps, (1e-5, 1e-6, 1e-6, 0.0)),
        }

    def box_of(self, batch: Batch) -> InputRegion:
        """Return the box that interval bounds start from: the whole region."""
        return batch.region(self.clip)

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the product of both losses, and the penalties."""
        found = self.propagate(batch, self.box_of(batch))
        ibp = self.worst_cross_entropy(batch, found)
        if not self.attacked_relus:
            return {"certified": ibp} | self.penalties(batch, found)
        share = self.taps_weight / (1 + self.taps_weight)
        taps = _scaled_gradient(self._taps(batch, found), 2 * share)
        return {"certified": taps * _scaled_gradient(ibp, 2 * (1 - share))} | self.penalties(batch, found)

    def _taps(self, batch: Batch, found: Propagated) -> Tensor:
        """Compute L_TAPS, the cross-entropy of the margins that the latent attack finds."""
        cut = cut_before(batch.graph, self.attacked_relus)
        second, labels = part_behind(batch.graph, cut), batch.targets
        classes = found.values[-1].centre.shape[1]
        others = torch.arange(classes, device=labels.device)[None] != labels[:, None]
        owner, target = others.nonzero(as_tuple=True)
        ends = found.values[cut].interval
        box = Interval(ends.lower[owner], ends.upper[owner])

        def margins(points: Tensor) -> Tensor:
            scores = second.values(points)[-1]
            return (scores.gather(1, labels[owner, None]) - scores.gather(1, target[:, None])).squeeze(1)

        points = _latent_points(margins, box, self.latent_steps, self.latent_step_share)
        found_margins = margins(_InBox.apply(points, *box))  # type: ignore[no-untyped-call]
        every = found_margins.new_zeros(len(labels), classes).index_put((owner, target), found_margins)
        return F.cross_entropy(-every, labels)


def cut_before(graph: Graph, relus: int) -> int:
    """Return the position behind which the last ``relus`` ReLU layers lie: another ReLU's output, or the input.

    Raises:
        UserError: The network has fewer ReLU layers, or a connection skips the cut.
    """
    positions = [0, *graph.relus]
    if relus >= len(positions):
        raise UserError(f"attacked_relus = {relus}, but the network has {len(positions) - 1} layers of ReLUs")
    cut = positions[-1 - relus]
    skipping = [node.name for position, node in graph.numbered() if position > cut and min(node.inputs) < cut]
    if skipping:
        raise UserError(
            f"attacked_relus = {relus} cuts the network where a connection to '{skipping[0]}' skips the cut"
        )
    return cut


def part_behind(graph: Graph, cut: int) -> Graph:
    """Return the part of a graph that reads the value at ``cut`` as its input."""
    nodes = [node for position, node in graph.numbered() if position > cut]
    return Graph(tuple(replace(node, inputs=tuple(source - cut for source in node.inputs)) for node in nodes))


def _latent_points(margins: Any, box: Interval, steps: int, step_share: float) -> Tensor:
    """Look for points of latent boxes with a small margin. Steps are shares of half a box's width."""
    lower, upper = box.lower.detach(), box.upper.detach()
    centre, half = (lower + upper) / 2, (upper - lower) / 2
    unit = InputRegion(-torch.ones_like(half), torch.ones_like(half))  # where u stands for centre + half · u
    found = descend(lambda at: margins(centre + half * at), unit, unit.sample(), steps=steps, step_size=step_share)
    return torch.minimum(torch.maximum(centre + half * found, lower), upper)


class _InBox(torch.autograd.Function):
    """A point of a box as a function of the box's ends: near an end, it moves with that end (rectified linear)."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        ctx.save_for_backward(points, lower, upper)
        return points.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        points, lower, upper = ctx.saved_tensors
        edge = EDGE * (upper - lower)
        wide = edge > 0
        safe = torch.where(wide, edge, 1.0)
        with_upper = torch.where(wide, ((points - (upper - edge)) / safe).clamp(0, 1), 0.5)
        with_lower = torch.where(wide, ((lower + edge - points) / safe).clamp(0, 1), 0.5)
        return None, gradient * with_lower, gradient * with_upper


def _scaled_gradient(value: Tensor, factor: float) -> Tensor:
    """Return the same value with its gradient times a factor."""
    return value * factor - (value * (factor - 1)).detach()
