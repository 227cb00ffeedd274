"""What a network can compute over a region: each method is ``(network, region) -> LayerBounds``."""

from steadynet.bounds.crown import crown_bounds
from steadynet.bounds.interval import interval_bounds
from steadynet.bounds.layer_bounds import LayerBounds
from steadynet.bounds.optimised import optimised_bounds
from steadynet.bounds.substituted import substituted_bounds
from steadynet.graph.operations import Interval
from steadynet.graph.trace import UnsupportedNetworkError
from steadynet.graph.translate import graph_of

__all__ = [
    "Interval",
    "LayerBounds",
    "UnsupportedNetworkError",
    "crown_bounds",
    "graph_of",
    "interval_bounds",
    "optimised_bounds",
    "substituted_bounds",
]
