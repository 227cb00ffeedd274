"""By how much a label leads: bounds of y_label − y_j for every class j, which certified training makes positive."""

from __future__ import annotations

import torch
from torch import Tensor

from steadynet.bounds.graph import Graph
from steadynet.bounds.linear import Backward, Rows
from steadynet.bounds.operations import Dense, Interval, MaxPool, Rectifier


def interval_margins(graph: Graph, values: list[Interval], labels: Tensor) -> Tensor:
    """Lower bounds of y_label − y_j, shape (batch, classes), 0 at the label itself; ``values``: ``graph.intervals``.

    A last dense layer is folded into the difference, (w_label − w_j)·h + b_label − b_j over the interval of h, which is
    tighter than the difference of two intervals.
    """
    last = graph.nodes[-1]
    if isinstance(last.operation, Dense) and values[last.inputs[0]].lower.dim() == 2:
        return _folded(last.operation, values[last.inputs[0]], labels)
    output = values[-1]
    lead = output.lower.gather(1, labels[:, None]) - output.upper
    return lead.scatter(1, labels[:, None], 0.0)


def _folded(last: Dense, features: Interval, labels: Tensor) -> Tensor:
    rows = last.weight[labels][:, None] - last.weight  # (batch, classes, features)
    centre, half = (features.upper + features.lower) / 2, (features.upper - features.lower) / 2
    lead = (rows @ centre[:, :, None] - rows.abs() @ half[:, :, None]).squeeze(2)
    return lead if last.bias is None else lead + last.bias[labels][:, None] - last.bias


def crown_margins(graph: Graph, values: list[Interval], labels: Tensor) -> Tensor:
    """The same bounds by one backward pass of CROWN over the interval bounds of the rectifiers (CROWN-IBP)."""
    bounds = {
        position: values[node.inputs[0]]
        for position, node in enumerate(graph.nodes, 1)
        if isinstance(node.operation, (Rectifier, MaxPool))
    }
    backward = Backward(graph, [tuple(value.lower.shape[1:]) for value in values], values[0], bounds)
    relaxations = {relu: backward.relaxation(relu) for relu in graph.relus}
    batch, classes = values[-1].lower.shape
    identity = torch.eye(classes, dtype=values[-1].lower.dtype, device=labels.device)
    others = torch.arange(classes, device=labels.device)[None] != labels[:, None]
    owner, target = others.nonzero(as_tuple=True)
    rows = Rows(identity[labels[owner]] - identity[target])
    found = backward.lower(len(graph.nodes), rows, owner, relaxations=relaxations)
    return found.new_zeros(batch, classes).index_put((owner, target), found)
