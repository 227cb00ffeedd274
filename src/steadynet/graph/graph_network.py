"""A PyTorch network made from a graph, as the ONNX reader returns it."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Convolution, Dense, Shape


class GraphNetwork(nn.Module):
    """A PyTorch module that computes a graph. Its weights are buffers, so ``to`` and ``state_dict`` work.

    Args:
        graph: The graph.
        input_shape: The shape of one input, without the batch.

    >>> import torch
    >>> from steadynet.graph.operations import ReLU, Scale
    >>> double = Scale(torch.tensor(2.0), torch.tensor(1.0))
    >>> network = GraphNetwork(Graph((Node("twice", double, (0,)), Node("relu", ReLU(), (1,)))), (2,))
    >>> network(torch.tensor([[1.0, -1.0]])), list(network.state_dict())
    (tensor([[3., 0.]]), ['weight_1_factor', 'weight_1_shift'])
    """

    def __init__(self, graph: Graph, input_shape: Shape) -> None:
        super().__init__()
        self.input_shape = tuple(input_shape)
        self._graph = graph
        for position, node in graph.numbered():
            for name, value in _tensors(node).items():
                self.register_buffer(f"weight_{position}_{name}", value.detach())
        self._graph = self.graph

    @property
    def graph(self) -> Graph:
        """The graph with the present weights."""
        nodes = tuple(self._current(position, node) for position, node in self._graph.numbered())
        unchanged = all(node is known for node, known in zip(nodes, self._graph.nodes, strict=True))
        return self._graph if unchanged else Graph(nodes)

    def make_trainable(self) -> None:
        """Make the weights of layers parameters, so that an optimiser finds them. Other constants stay as they are."""
        for position, node in self._graph.numbered():
            if isinstance(node.operation, (Convolution, Dense)):
                for name in _tensors(node):
                    full_name = f"weight_{position}_{name}"
                    value = getattr(self, full_name)
                    delattr(self, full_name)
                    self.register_parameter(full_name, nn.Parameter(value.clone()))

    def forward(self, images: Tensor) -> Tensor:
        """Compute the output for images (batch, *input_shape)."""
        return self.graph.values(images)[-1]

    def _current(self, position: int, node: Node) -> Node:
        stored = _tensors(node)
        weights = {name: getattr(self, f"weight_{position}_{name}") for name in stored}
        if all(weights[name] is value for name, value in stored.items()):  # mostly: nobody has replaced a weight
            return node
        return replace(node, operation=replace(node.operation, **weights))  # type: ignore[type-var]


def _tensors(node: Node) -> dict[str, Tensor]:
    return {name: value for name, value in vars(node.operation).items() if isinstance(value, Tensor)}
