"""Check that a graph is the network that it was translated from."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
import torch.fx
from torch import Tensor, nn

from steadynet.devices import full_precision, plain_convolutions
from steadynet.errors import one_line
from steadynet.graph.execution import first_deviation
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Scale
from steadynet.graph.purity import same_bits
from steadynet.graph.recorded_calls import RecordedCalls
from steadynet.graph.trace import Trace, UnsupportedNetworkError
from steadynet.networks.evaluation_mode import evaluation_mode


def check_weights(network: nn.Module, graph: Graph) -> None:
    """Refuse weights that are not finite, and factors that lost digits when they were computed from other weights.

    Raises:
        UnsupportedNetworkError: There is such a weight; the message names its layer.
    """
    name = type(network).__name__
    for node in graph.nodes:
        tensors = [value for value in vars(node.operation).values() if isinstance(value, Tensor)]
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise UnsupportedNetworkError(f"{name} has weights that are NaN or infinite (layer '{node.name}')")
        if isinstance(node.operation, Scale) and node.operation.roundings:
            size = node.operation.factor.abs()
            if bool(((size > 0) & (size < torch.finfo(size.dtype).smallest_normal)).any()):
                raise UnsupportedNetworkError(f"{name} multiplies by a number that underflows (layer '{node.name}')")


def check_agreement(graph: Graph, trace: Trace, calls: Mapping[int, torch.fx.Node], images: Tensor) -> None:
    """Compare a graph with its network, layer by layer: a graph of another function would prove nothing.

    Args:
        graph: The graph.
        trace: The trace of the network that it was translated from.
        calls: The call of the trace that computes each value of the graph, by position.
        images: What to compare on, (batch, *shape).

    Raises:
        UnsupportedNetworkError: They differ by more than rounding, or the network does not take such a batch.
    """
    network, name = trace.network, type(trace.network).__name__
    try:
        with full_precision(images.device), plain_convolutions(), torch.no_grad(), evaluation_mode(network):
            expected = network(images.clone())
            results = trace.results_on(images)
    except RuntimeError as error:
        raise UnsupportedNetworkError(f"{name} does not take a batch of {len(images)}: {one_line(error)}") from error
    if not same_bits(results[trace.last_call], expected):
        raise UnsupportedNetworkError(f"{name} was read wrongly: its forward does something else when it is traced")
    computed = {position: results[call] for position, call in calls.items()}
    deviation = first_deviation(graph, images, computed, images.dtype)
    if deviation is not None:
        raise UnsupportedNetworkError(
            f"{name} {'overflows' if deviation.overflows else 'was read wrongly'}: {deviation}"
        )


def check_calls(trace: Trace, images: Tensor) -> None:
    """Check that a network calls the same functions when it is run as when it was traced, also for gradients.

    Python code may tell the two apart (``isinstance(x, Tensor)``, ``torch.is_grad_enabled()``), or count the images of
    a batch, and compute something else, which outputs show for rare images only.

    Args:
        trace: The trace of the network.
        images: What to run it on, (batch, *shape); with gradients, the first image alone.

    Raises:
        UnsupportedNetworkError: A call is another, or the network looks at the values of its images.
    """
    network, name = trace.network, type(trace.network).__name__
    weights = itertools.chain(network.parameters(), network.buffers())
    without_gradients = any(weight.is_inference() for weight in weights)
    for some, gradients in ((images, False), (images[:1], not without_gradients)):
        with torch.inference_mode(False), torch.set_grad_enabled(gradients):
            given = some.clone()
            with evaluation_mode(network), RecordedCalls(given) as record:
                network(given)
            traced = trace.record_on(some.clone())
        if record.looked_by or record.calls != traced.calls:
            mode = "with gradients" if gradients else f"on {len(some)} images"
            raise UnsupportedNetworkError(
                f"{name} was read wrongly: its forward does something else when it is run {mode} than when it is traced"
            )
