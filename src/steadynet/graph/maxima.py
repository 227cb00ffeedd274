"""Rewrite maxima as ReLUs: max(a, b) = b + relu(a − b).

Branch and bound splits ReLUs only. After this rewriting it also decides networks with max pooling.
"""

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
    """Return whether the graph contains a maximum (max pooling)."""
    return any(isinstance(node.operation, MaxPool) for node in graph.nodes)


def without_maxima(graph: Graph, shapes: Sequence[Shape], like: Tensor) -> Graph:
    """Return a graph that computes the same function with ReLUs in place of every maximum.

    Args:
        graph: The network.
        shapes: The shape of each value of the graph, by position.
        like: A tensor with the data type and on the device of the network's weights.
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
    """The new graph while it is built.

    Attributes:
        place: The position in the new graph of each value of the old graph.
        nodes: The nodes of the new graph.
    """

    place: list[int]
    nodes: list[Node] = field(default_factory=list)

    def add(self, name: str, operation: Operation, *sources: int) -> int:
        self.nodes.append(Node(name, operation, sources))
        return len(self.nodes)


def _expanded(
    builder: _Builder, name: str, operation: MaxPool, source: int, before: Shape, after: Shape, like: Tensor
) -> int:
    """Add the nodes that compute a maximum over windows, and return the position of the result.

    Candidates are compared in pairs, and the larger one, second + relu(first − second), stays.
    """
    channels, height, width = before
    pixels = torch.arange(height * width, dtype=torch.float64, device="cpu").view(1, 1, height, width)
    windows = operation.candidates(pixels)[0, 0].flatten(1)  # (candidates, windows), −∞ in the padding
    windows = torch.where(
        windows.isfinite(), windows, windows.amax(0)
    ).long()  # padding becomes a copy of a real candidate
    flat = builder.add(f"{name} (flat)", Reshape((channels, height * width)), source)
    one = torch.ones((), dtype=like.dtype, device=like.device)
    left = [builder.add(f"{name} (candidate)", Take(2, tuple(window.tolist())), flat) for window in windows]
    while len(left) > 1:  # a tournament of pairs has few ReLUs in sequence
        first, second = left.pop(0), left.pop(0)
        negated = builder.add(f"{name} (negated)", Scale(-one, 0 * one), second)
        difference = builder.add(f"{name} (difference)", Sum(), first, negated)
        excess = builder.add(f"{name} (excess)", ReLU(), difference)
        left.append(builder.add(f"{name} (larger)", Sum(), second, excess))
    return builder.add(name, Reshape(after), left[0])
