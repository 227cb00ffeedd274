"""The graph of a network: its operations in the order in which they are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from steadynet.graph.operations import Interval, Operation, ReLU
from steadynet.graph.s_shaped import SShaped


@dataclass(frozen=True)
class Node:
    """One operation of a network.

    Attributes:
        name: The name of the layer in the network.
        operation: What the node computes.
        inputs: The positions of the values that it reads (see :class:`Graph`); 0 is the network's input.
    """

    name: str
    operation: Operation
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """The operations of a network, sorted so that each one comes after its inputs.

    The values of a network are numbered: value 0 is the network's input, and value ``i`` is the output of the
    ``i``-th node. A number of this kind is called a position. Only this class knows that node and position differ by 1.

    Args:
        nodes: The operations, in the order in which they are computed.

    >>> from steadynet.graph.operations import Sum
    >>> graph = Graph((Node("relu", ReLU(), (0,)), Node("sum", Sum(), (0, 1))))
    >>> graph.relus, graph.output, graph.producer(2).name, graph.source(1)
    ([1], 2, 'sum', 0)
    """

    nodes: tuple[Node, ...]

    @property
    def output(self) -> int:
        """The position of the network's output."""
        return len(self.nodes)

    @property
    def relus(self) -> list[int]:
        """The positions of the values that ReLUs compute, in order."""
        return [position for position, node in self.numbered() if isinstance(node.operation, ReLU)]

    @property
    def s_shaped(self) -> list[int]:
        """The positions of the values that sigmoids and tanhs compute, in order."""
        return [position for position, node in self.numbered() if isinstance(node.operation, SShaped)]

    @property
    def activations(self) -> list[int]:
        """The positions of the values that ReLUs, sigmoids and tanhs compute, in order."""
        return sorted((*self.relus, *self.s_shaped))

    def numbered(self) -> Iterator[tuple[int, Node]]:
        """Iterate over the nodes, each with the position of the value that it computes."""
        return enumerate(self.nodes, 1)

    def producer(self, position: int) -> Node:
        """Return the node that computes the value at this position.

        Raises:
            IndexError: The position is 0 (the network's input, which no node computes) or is not in the graph.
        """
        if position < 1:
            raise IndexError(f"no node computes value {position}")
        return self.nodes[position - 1]

    def source(self, position: int) -> int:
        """Return the position of the first value that a node reads: for a ReLU, its pre-activation."""
        return self.producer(position).inputs[0]

    def needed_by(self, position: int) -> list[int]:
        """Return the positions of the values that the value at this position is computed from, and its own, in order.

        The network's input, which is always there, is left out.
        """
        needed: set[int] = set()
        waiting = [position]
        while waiting:
            current = waiting.pop()
            if current and current not in needed:
                needed.add(current)
                waiting += self.producer(current).inputs
        return sorted(needed)

    def up_to(self, position: int) -> Graph:
        """Return the graph whose output is the value at this position, without the nodes that it does not need."""
        needed = self.needed_by(position)
        moved = {0: 0} | {old: new for new, old in enumerate(needed, 1)}
        kept = (self.producer(old) for old in needed)
        return Graph(tuple(replace(node, inputs=tuple(moved[source] for source in node.inputs)) for node in kept))

    def after(self, first: Graph) -> Graph:
        """Return the graph that computes ``first`` and then this graph on its output.

        >>> from steadynet.graph.operations import Sum
        >>> relu, twice = Graph((Node("relu", ReLU(), (0,)),)), Graph((Node("sum", Sum(), (0, 0)),))
        >>> [node.inputs for node in twice.after(relu).nodes]
        [(0,), (1, 1)]
        """
        offset = first.output
        moved = (replace(node, inputs=tuple(source + offset for source in node.inputs)) for node in self.nodes)
        return Graph((*first.nodes, *moved))

    def converted(self, convert: Callable[[Tensor], Tensor]) -> Graph:
        """Return the same graph with its tensors in another precision or on another device."""
        return Graph(tuple(replace(node, operation=_converted(node.operation, convert)) for node in self.nodes))

    def values(self, images: Tensor) -> list[Tensor]:
        """Compute every value for a batch of images; the last one is the network's output."""
        values = [images]
        for node in self.nodes:
            values.append(node.operation.apply(*(values[position] for position in node.inputs)))
        return values

    def intervals(self, box: Interval) -> list[Interval]:
        """Compute interval bounds of every value over a box (interval bound propagation)."""
        bounds = [box]
        for node in self.nodes:
            bounds.append(node.operation.interval(*(bounds[position] for position in node.inputs)))
        return bounds


def _converted(operation: Operation, convert: Callable[[Tensor], Tensor]) -> Operation:
    tensors = {name: convert(value) for name, value in vars(operation).items() if isinstance(value, Tensor)}
    return replace(operation, **tensors) if tensors else operation  # type: ignore[type-var]
