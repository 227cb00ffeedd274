"""The graph of a network that is being trained.

The network is traced once, not at every step, and batch norm uses the statistics of the batch at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from steadynet.graph.batch_norm import batch_norm_scale
from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Scale
from steadynet.graph.trace import UnsupportedNetworkError
from steadynet.graph.translate import graph_of
from steadynet.networks.evaluation_mode import BATCH_NORMS

Statistics = dict[str, list[tuple[Tensor, Tensor]]]  # module -> per call: mean and variance of each channel


def normalises_batches(network: nn.Module) -> bool:
    """Whether a forward pass would normalise by the statistics of its own batch: a batch norm is in training mode."""
    return any(isinstance(module, BATCH_NORMS) and module.training for module in network.modules())


@contextmanager
def recorded_statistics(network: nn.Module) -> Iterator[Statistics]:
    """Record the statistics that batch norms in training mode use while the context is active.

    Yields:
        The statistics of each batch norm, filled by the forward passes in the context. Gradients flow through them.
    """
    found: Statistics = {}

    def recorder(name: str) -> Any:
        def record(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            axes = [axis for axis in range(inputs[0].dim()) if axis != 1]
            variance, mean = torch.var_mean(inputs[0], axes, correction=0)
            found.setdefault(name, []).append((mean, variance))

        return record

    hooks = [
        module.register_forward_pre_hook(recorder(name))
        for name, module in network.named_modules()
        if isinstance(module, BATCH_NORMS) and module.training
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


class LiveGraph:
    """Keeps the graph of a network from one training step to the next.

    The network is traced again only if the graph holds a tensor that was computed from weights, and so is out of date
    once the weights change.

    Args:
        network: The network.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self._kept: dict[tuple[int, ...], Graph] = {}
        self._checked: set[tuple[int, ...]] = set()

    def graph(self, shape: tuple[int, ...], statistics: Statistics | None = None) -> Graph:
        """Return the graph for inputs of one shape.

        Args:
            shape: The shape of one input, without the batch.
            statistics: What :func:`recorded_statistics` found; batch norms use it instead of their running statistics.

        Raises:
            UnsupportedNetworkError: The network has no graph, or runs other batch norms in training than in evaluation.
        """
        traced = self._kept.get(shape) or graph_of(self.network, shape, check=shape not in self._checked)
        self._checked.add(shape)
        result = _with_statistics(traced, self.network, statistics or {})
        kept = [node for node, now in zip(traced.nodes, result.nodes, strict=True) if node is now]
        if not any(_is_computed(value) for node in kept for value in vars(node.operation).values()):
            self._kept[shape] = traced
        return result


def _is_computed(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad and not value.is_leaf


def _with_statistics(graph: Graph, network: nn.Module, statistics: Statistics) -> Graph:
    left = {name: list(calls) for name, calls in statistics.items()}

    def now(node: Node) -> Node:
        if not left.get(node.name) or not isinstance(node.operation, Scale):
            return node
        scale = _scale(network.get_submodule(node.name), *left[node.name].pop(0), node.operation.factor)
        return replace(node, operation=scale)

    result = Graph(tuple(now(node) for node in graph.nodes))
    if any(left.values()):
        raise UnsupportedNetworkError(f"no bounds for {type(network).__name__}: its batch norms differ in evaluation")
    return result


def _scale(module: nn.Module, mean: Tensor, variance: Tensor, like: Tensor) -> Scale:
    assert isinstance(module, BATCH_NORMS)
    return batch_norm_scale(mean, variance, module.eps, module.weight, module.bias, axes=like.dim() - 1)
