"""Compare a graph with an ONNX file that should compute the same, tensor by tensor, through ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch

from steadynet.graph.execution import Deviation, first_deviation
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Shape
from steadynet.graph.purity import same_bits
from steadynet.interchange.onnx.node import Array

RANDOM_RANGES = ((0, 1), (-1, 2), (-10, 10))
_NUMBERS_IN_MEMORY, _NUMBERS_IN_TIME = 2**23, 2**24  # of a network's values that are compared at once, and in all
_LEAST_IMAGES = 4  # that even a very large network is compared on


def runtime_deviation(
    graph: Graph, images: Array, tensors: Mapping[str, int], run: Callable[[Array], dict[str, Array]]
) -> Deviation | None:
    """Find the first tensor of an ONNX file that no execution of a graph can have computed.

    Every tensor that the file names is compared, each of its numbers within its own rounding. A large number beside a
    small one, or in another layer, makes no room for the small one.

    Args:
        graph: The graph.
        images: Inputs of the network, (batch, *shape), each in the shape that the file has without its batch axis. Of
            these, a very large network is compared on a few only.
        tensors: The position in the graph of the value that each named tensor of the file is. Several names may have
            one position; they must have the same numbers.
        run: A function that computes the named tensors for one input with ONNX Runtime.

    Returns:
        The first deviation; None if the graph explains every number.
    """
    shapes = [tuple(value.shape[1:]) for value in graph.values(torch.from_numpy(images[:1]))]
    numbers = sum(map(math.prod, shapes))
    most, at_once = max(_LEAST_IMAGES, _NUMBERS_IN_TIME // numbers), max(1, _NUMBERS_IN_MEMORY // numbers)
    images = images[:: max(1, -(-len(images) // most))]
    for start in range(0, len(images), at_once):
        deviation = _deviation(graph, images[start : start + at_once], tensors, shapes, run)
        if deviation is not None:
            return deviation
    return None


def _deviation(
    graph: Graph,
    images: Array,
    tensors: Mapping[str, int],
    shapes: list[Shape],
    run: Callable[[Array], dict[str, Array]],
) -> Deviation | None:
    inputs = torch.from_numpy(images)
    runs = [run(image) for image in images]
    computed = {0: inputs}
    for name, position in tensors.items():
        found = torch.from_numpy(np.stack([results[name].reshape(-1) for results in runs]))
        if found.shape[1] != math.prod(shapes[position]):
            return Deviation(name, f"has {found.shape[1]} numbers, not the shape {shapes[position]}")
        value = found.view(len(images), *shapes[position])
        if not same_bits(computed.setdefault(position, value), value):
            return Deviation(name, "computes something where nothing was read")
    del computed[0]
    return first_deviation(graph, inputs, computed, inputs.dtype)


def example_images(shape: tuple[int, ...], dtype: torch.dtype) -> Array:
    """Return inputs to compare on: random ones from several ranges, and corners of the box from 0 to 1."""
    random = np.random.default_rng(0)
    images = [random.uniform(low, high, shape) for low, high in RANDOM_RANGES]
    images += [np.zeros(shape), np.ones(shape), random.integers(0, 2, shape).astype(np.float64)]
    return np.stack(images).astype(np.float32 if dtype == torch.float32 else np.float64)
