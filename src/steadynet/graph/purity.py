"""Check that a network is a function: what it computes for an image depends on nothing else."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from steadynet.devices import plain_convolutions
from steadynet.errors import one_line
from steadynet.graph.recorded_calls import RecordedCalls
from steadynet.graph.state import clocks_read, other_state, random_state, same_state, weights_and_numbers
from steadynet.graph.trace import UnsupportedNetworkError
from steadynet.networks.evaluation_mode import evaluation_mode

BATCH = 3  # images that a network is tried on
LARGE_BATCH = 33  # images of a batch that only the calls are compared on


def check_function(network: nn.Module, images: Tensor) -> Tensor:
    """Check that a network computes its output from each image alone, and changes nothing.

    It takes some passes on three images. Outputs are compared bit for bit, so noise of any size is seen; noise that is
    rare is seen by the random numbers that it takes.

    Args:
        network: The network. It is run in evaluation mode.
        images: One or more images, (batch, *shape). The first three are used.

    Returns:
        The output for the first image, (1, *output).

    Raises:
        UnsupportedNetworkError: The network changes the images that it is given, or its own weights, buffers or
            other attributes; it has noise or other state, or reads a clock; it looks at the values of its images, or
            mixes the images of a batch.

    >>> class Noisy(nn.Module):
    ...     def forward(self, images):
    ...         return images + 1e-6 * torch.rand(4)
    >>> check_function(Noisy(), torch.zeros(1, 4))
    Traceback (most recent call last):
    ...
    steadynet.graph.trace.UnsupportedNetworkError: Noisy computes other outputs when it is run again on the same...
    """
    name = type(network).__name__
    first, others = images[:1], torch.cat([images[1:BATCH], images[:1] / 2, images[:1] / 4])[: BATCH - 1]
    batch = torch.cat([first, others])
    with torch.no_grad(), evaluation_mode(network), plain_convolutions():
        weights, drawn = weights_and_numbers(network), random_state()
        given = batch.clone()
        output = _run(network, given)
        remembered = other_state(network)  # from here on: what the first run builds and keeps is no state
        if not given.equal(batch):
            raise UnsupportedNetworkError(
                f"{name} changes the images that it is given: write x = x - 1 instead of x -= 1, and the like"
            )
        if not same_bits(network(batch.clone()), output):
            raise UnsupportedNetworkError(
                f"{name} computes other outputs when it is run again on the same images: "
                "remove the noise or the state from its forward"
            )
        if not same_bits(network(torch.cat([first, others / 2]))[:1], output[:1]):
            raise UnsupportedNetworkError(
                f"{name} computes another output for an image when the other images of its batch change"
            )
        _check_sources(network, batch.clone())
        after = weights_and_numbers(network) | other_state(network)
    if not same_state(drawn, random_state()):
        raise UnsupportedNetworkError(f"{name} draws random numbers when it is run: remove the noise from its forward")
    before = remembered | weights
    changed = [key for key, value in after.items() if not same_state(before.get(key), value)]
    if changed:
        raise UnsupportedNetworkError(
            f"{name} changes its own '{changed[0]}' when it is run: keep its forward free of state"
        )
    result: Tensor = output[:1]
    return result


def _check_sources(network: nn.Module, images: Tensor) -> None:
    """Check that a forward decides nothing by the values of its images or by the time of day."""
    with clocks_read() as clocks, RecordedCalls(images) as record:
        network(images)
    name = type(network).__name__
    if record.looked_by:
        raise UnsupportedNetworkError(
            f"{name} looks at the values of its images in Python, by {record.looked_by}: nothing is known of what it "
            "decides for other images"
        )
    if clocks:
        raise UnsupportedNetworkError(f"{name} reads the clock when it is run, by {sorted(clocks)[0]}")


def _run(network: nn.Module, images: Tensor) -> Tensor:
    try:
        result: Tensor = network(images)
    except RuntimeError as error:
        raise UnsupportedNetworkError(
            f"{type(network).__name__} does not take a batch of {len(images)} inputs of shape "
            f"{tuple(images.shape[1:])}: {one_line(error)}"
        ) from error
    return result


def same_bits(one: Any, other: Any) -> bool:
    """Whether two outputs of a network are the same tensor, bit for bit; NaN equals NaN."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return False
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.equal(other) or bool((one.eq(other) | (one.isnan() & other.isnan())).all())
