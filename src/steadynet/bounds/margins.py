"""Bounds of the margins y_label − y_j of every class j, differentiable: certified training makes them positive."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.center_radius import Ball
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.queries import BoundQuery
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Dense, ReLU
from steadynet.graph.pooling import MaxPool


def ibp_margins(graph: Graph, values: list[Ball], labels: Tensor) -> Tensor:
    """Lower bounds of y_label − y_j, shape (batch, classes), 0 at the label itself; ``values``: ``propagate_balls``.

    A last dense layer is folded into the difference, (w_label − w_j)·h + b_label − b_j over the interval of h, which is
    tighter than the difference of two intervals.
    """
    last = graph.nodes[-1]
    if isinstance(last.operation, Dense) and values[-1].centre.dim() == 2:
        scores = values[-1].centre
        lead = scores.gather(1, labels[:, None]) - scores
        return lead - _spread(last.operation.weight, values[last.inputs[0]].radius, labels)
    output = values[-1].interval
    lead = output.lower.gather(1, labels[:, None]) - output.upper
    return lead.scatter(1, labels[:, None], 0.0)


def _spread(weight: Tensor, radius: Tensor, labels: Tensor) -> Tensor:
    """|w_label − w_j| · radius, (batch, classes): one product for all labels there are, each image takes its own."""
    present, own = labels.unique(return_inverse=True)
    rows = (weight[present][:, None] - weight).abs()  # (labels present, classes, features)
    every = F.linear(radius, rows.flatten(0, 1)).view(len(labels), len(present), -1)
    return every[torch.arange(len(labels), device=labels.device), own]


def crown_margins(graph: Graph, values: list[Ball], labels: Tensor) -> Tensor:
    """Lower bounds of y_label − y_j by one backward pass over the interval bounds of the ReLU inputs (CROWN-IBP)."""
    bounds = {
        position: values[node.inputs[0]].interval
        for position, node in enumerate(graph.nodes, 1)
        if isinstance(node.operation, (ReLU, MaxPool))
    }
    shapes = tuple(tuple(value.centre.shape[1:]) for value in values)
    bounded = BoundedNetwork(graph, shapes, values[0].interval, bounds)
    batch, classes = values[-1].centre.shape
    identity = torch.eye(classes, dtype=values[-1].centre.dtype, device=labels.device)
    others = torch.arange(classes, device=labels.device)[None] != labels[:, None]
    owner, target = others.nonzero(as_tuple=True)
    leads = LinearFunctions(identity[labels[owner]] - identity[target])
    found = bounded.relaxed().lower(BoundQuery(bounded.output, leads, owner)).value
    return found.new_zeros(batch, classes).index_put((owner, target), found)
