"""Interval bound propagation: the cheapest bounds."""

from __future__ import annotations

from torch import nn

from steadynet.attacks.region import InputRegion
from steadynet.bounds.layer_bounds import LayerBounds
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of


def interval_bounds(network: nn.Module, region: InputRegion, *, check: bool = True) -> LayerBounds:
    """Bounds of every ReLU input and of the logits over the region, differentiable in the network's weights.

    ``check`` is that of :func:`~steadynet.graph.translate.graph_of`: where the same network is bounded again and again,
    once is enough.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    >>> _ = [parameter.data.fill_(2.0) for parameter in network.parameters()]
    >>> interval_bounds(network, InputRegion(torch.tensor([[-3.0]]), torch.tensor([[1.0]]))).output
    Interval(lower=tensor([[0.]], ...), upper=tensor([[4.]], ...))
    """
    graph = graph_of(network, region.lower.shape[1:], check=check)
    values = graph.intervals(Interval(region.lower, region.upper))
    inputs = [values[graph.source(relu)] for relu in graph.relus]
    return LayerBounds("ibp", inputs, values[-1])
