"""Maxima as ReLUs: max(a, b) = b + relu(a − b), so that a search over ReLU signs decides networks with max pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Operation, ReLU, Scale, Shape, Sum
from steadynet.graph.pooling import MaxPool
from steadynet.graph.rearrangements import Reshape, Take


def has_maxima(graph: Graph) -> bool:
    """Whether a graph has a maximum."""
    return any(isinstance(node.operation, MaxPool) for node in graph.nodes)


def without_maxima(graph: Graph, shapes: Sequence[Shape], like: Tensor) -> Graph:
    """The same function, with every maximum written as ReLUs.

    Args:
        graph: the network.
        shapes: the shape of every value of the graph.
        like: a tensor of the precision and on the device of the network.
    """
    builder = _Builder([0])
    for position, node in graph.numbered():
        sources = [builder.place[source] for source in node.inputs]
        if isinstance(node.operation, MaxPool):
            before, after = shapes[node.inputs[0]], shapes[position]
            builder.place.append(_expanded(builder, node.name, node.operation, sources[0], before, after, like))
        else:
            builder.place.append(builder.add(node.name, node.operation, *sources))
    return Graph(tuple(builder.nodes))


@dataclass
class _Builder:
    """The nodes so far, and where each value of the old graph went."""

    place: list[int]
    nodes: list[Node] = field(default_factory=list)

    def add(self, name: str, operation: Operation, *sources: int) -> int:
        self.nodes.append(Node(name, operation, sources))
        return len(self.nodes)


def _expanded(
    builder: _Builder, name: str, operation: MaxPool, source: int, before: Shape, after: Shape, like: Tensor
) -> int:
    """Add a maximum over windows, two candidates at a time: the larger is second + relu(first − second)."""
    channels, height, width = before
    pixels = torch.arange(height * width, dtype=torch.float64, device="cpu").view(1, 1, height, width)
    windows = operation.candidates(pixels)[0, 0].flatten(1)  # (candidates, windows), −∞ in the padding
    windows = torch.where(windows.isfinite(), windows, windows.amax(0)).long()  # instead, a candidate twice
    flat = builder.add(f"{name} (flat)", Reshape((channels, height * width)), source)
    one = torch.ones((), dtype=like.dtype, device=like.device)
    left = [builder.add(f"{name} (candidate)", Take(2, tuple(window.tolist())), flat) for window in windows]
    while len(left) > 1:  # a tournament: few ReLUs lie between a candidate and the maximum
        first, second = left.pop(0), left.pop(0)
        negated = builder.add(f"{name} (negated)", Scale(-one, 0 * one), second)
        difference = builder.add(f"{name} (difference)", Sum(), first, negated)
        excess = builder.add(f"{name} (excess)", ReLU(), difference)
        left.append(builder.add(f"{name} (larger)", Sum(), second, excess))
    return builder.add(name, Reshape(after), left[0])
