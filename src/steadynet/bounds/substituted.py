"""Improved interval arithmetic (Xiao et al., 2019): intervals substituted back through ReLUs that are always active."""

from __future__ import annotations

import torch
from torch import nn

from steadynet.attacks.region import InputRegion
from steadynet.bounds.crown import propagate
from steadynet.bounds.layer_bounds import LayerBounds
from steadynet.bounds.relaxation import Relaxation
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of


def _constant_or_identity(bounds: Interval, slope: float) -> Relaxation:
    """The line y = z where a ReLU is always active, else the constants of its interval."""
    if slope:  # a leaky ReLU has no constant line at zero; CROWN's lines are as sound, and tighter
        return Relaxation.crown(bounds, slope)
    active = (bounds.lower >= 0).to(bounds.lower.dtype)
    return Relaxation(active, active, torch.where(bounds.lower >= 0, 0.0, bounds.upper.clamp_min(0)))


def substituted_bounds(network: nn.Module, region: InputRegion, *, check: bool = True) -> LayerBounds:
    """Bounds of every ReLU input and of the logits, never wider than plain intervals, differentiable in the weights.

    A layer behind always-active ReLUs is a linear function of what lies before them, so terms that intervals count
    twice cancel. Only ReLUs that plain intervals leave unstable are bounded again; the output is left to intervals.
    ``check`` is that of :func:`~steadynet.graph.translate.graph_of`.

    >>> from torch import tensor
    >>> network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1), nn.ReLU())  # y = relu(h₁ − h₂), h₁ = h₂
    >>> for parameter, value in zip(network.parameters(), ([[1.0], [1.0]], [2.0, 2.0], [[1.0, -1.0]], [0.0])):
    ...     parameter.data = tensor(value)
    >>> lower, upper = substituted_bounds(network, InputRegion(tensor([[-1.0]]), tensor([[1.0]]))).relus[1]
    >>> abs(lower.item()), abs(upper.item())
    (0.0, 0.0)
    """
    graph = graph_of(network, region.lower.shape[1:], check=check)
    bounded, values = propagate(graph, Interval(region.lower, region.upper), relax=_constant_or_identity)
    return LayerBounds("improved-ibp", bounded.relus(), values[-1])
