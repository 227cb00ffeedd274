"""What a network can compute over a region: each method is ``(network, region) -> LayerBounds``."""

from steadynet.bounds.interval import interval_bounds
from steadynet.bounds.layer_bounds import LayerBounds
from steadynet.bounds.operations import Interval
from steadynet.bounds.translate import UnsupportedNetworkError, graph_of

__all__ = ["Interval", "LayerBounds", "UnsupportedNetworkError", "graph_of", "interval_bounds"]
