"""A network as a list of few kinds of operations, whoever wrote it and however."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from steadynet.graph.operations import Interval, Operation, Rectifier


@dataclass(frozen=True)
class Node:
    """One operation: its name in the network, and the positions of its inputs (0 is the network's input)."""

    name: str
    operation: Operation
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which each comes after its inputs; value 0 is the input, value i the i-th node's output."""

    nodes: tuple[Node, ...]

    @property
    def relus(self) -> list[int]:
        """The values of the rectifiers, in order."""
        return [position for position, node in enumerate(self.nodes, 1) if isinstance(node.operation, Rectifier)]

    def values(self, images: Tensor) -> list[Tensor]:
        """Every value at a point; the last is the network's output."""
        values = [images]
        for node in self.nodes:
            values.append(node.operation.apply(*(values[position] for position in node.inputs)))
        return values

    def intervals(self, box: Interval) -> list[Interval]:
        """Interval bounds of every value over a box (interval bound propagation)."""
        bounds = [box]
        for node in self.nodes:
            bounds.append(node.operation.interval(*(bounds[position] for position in node.inputs)))
        return bounds
