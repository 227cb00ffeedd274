"""Networks that are piecewise linear: what programs over signs of ReLUs can express."""

from __future__ import annotations

from steadynet.graph.graph import Graph
from steadynet.graph.s_shaped import SShaped
from steadynet.graph.trace import UnsupportedNetworkError


def require_piecewise_linear(graph: Graph, verifier: str) -> None:
    """Refuse a network with sigmoids or tanhs, for a verifier that cannot decide it.

    Args:
        graph: The network.
        verifier: The name of the verifier, for the message.

    Raises:
        UnsupportedNetworkError: The network has such an operation; the message names its layer.
    """
    for node in graph.nodes:
        if isinstance(node.operation, SShaped):
            what = f"{node.operation.function.capitalize()} (layer '{node.name}')"
            raise UnsupportedNetworkError(
                f"{verifier} decides piecewise linear networks only, and this one has {what}: use branch_and_bound"
            )
