"""The layer that feeds a ReLU, for what changes single neurons: pruning and the shaping of biases."""

from __future__ import annotations

from torch import Tensor, nn

from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Convolution, Dense


def feeding_layer(graph: Graph, relu: int) -> Dense | Convolution | None:
    """Return the layer that feeds this ReLU layer, if it feeds nothing else and no other layer has its weights.

    Args:
        graph: The graph of a network, with the network's own parameters.
        relu: The position of the ReLU layer.
    """
    source = graph.source(relu)
    if source == 0 or sum(source in node.inputs for node in graph.nodes) > 1:
        return None
    operation = graph.producer(source).operation
    if not isinstance(operation, (Dense, Convolution)) or not isinstance(operation.weight, nn.Parameter):
        return None
    return operation if sum(_shares(node, operation.weight) for node in graph.nodes) == 1 else None


def _shares(node: Node, weight: Tensor) -> bool:
    return isinstance(node.operation, (Dense, Convolution)) and node.operation.weight is weight
