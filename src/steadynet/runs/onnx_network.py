"""Networks from ONNX files, as networks of a run: they take images as the data set has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from steadynet.errors import UserError
from steadynet.files import write_atomically
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.translate import graph_of
from steadynet.interchange.onnx.files import load_model
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.networks import Normalise


def network_for_images(
    source: str | Path | onnx.ModelProto,
    image_shape: tuple[int, ...],
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> GraphNetwork:
    """Read a network from ONNX, and let it take images of a data set.

    Args:
        source: The ONNX file, or a model in memory.
        image_shape: The shape of one image. A network of flat vectors gets the pixels in their order.
        mean: The mean of each channel, if images must be normalised before the network.
        std: The standard deviation of each channel, likewise.

    Returns:
        The network. Normalisation and reshaping are its first operations.

    Raises:
        UserError: The file cannot be read, or its network cannot take such images.
    """
    network = read_onnx(source)
    first = _input_layers(network.input_shape, tuple(image_shape), mean, std)
    if not len(first):
        return network
    weight = next((value for value in network.buffers() if value.is_floating_point()), torch.zeros(()))
    return GraphNetwork(network.graph.after(graph_of(first.to(weight.dtype).eval(), tuple(image_shape))), image_shape)


def copy_model(source: Path, target: Path) -> None:
    """Copy an ONNX model into one file, unpacked and with its external data."""
    model = load_model(source)
    write_atomically(target, lambda temporary: onnx.save_model(model, str(temporary)))


def _input_layers(
    wanted: tuple[int, ...],
    image_shape: tuple[int, ...],
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> nn.Sequential:
    """Return the layers between images and the network: normalisation, and a new shape where it has only one order."""
    layers = nn.Sequential()
    if mean is not None and std is not None:
        layers.append(Normalise(mean, std, len(image_shape)))
    if wanted == image_shape:
        return layers
    if math.prod(wanted) != math.prod(image_shape):
        raise UserError(f"the network takes inputs of shape {wanted}, but the images have the shape {image_shape}")
    if _is_vector(wanted) or _is_vector(image_shape):
        layers.append(nn.Flatten())
        if len(wanted) > 1:
            layers.append(nn.Unflatten(1, wanted))
        return layers
    if wanted == (*image_shape[1:], image_shape[0]):
        layers.append(ChannelsLast())
        return layers
    raise UserError(f"the network takes inputs of shape {wanted}, but the images have the shape {image_shape}")


class ChannelsLast(nn.Module):
    """Images (N, C, H, W) as networks from Keras take them: (N, H, W, C)."""

    def forward(self, images: Tensor) -> Tensor:
        """Move the channels."""
        return images.permute(0, 2, 3, 1)


def _is_vector(shape: tuple[int, ...]) -> bool:
    return sum(length > 1 for length in shape) <= 1
