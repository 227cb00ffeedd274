"""What users give to :func:`steadynet.verify`: networks and images in the forms that they have them in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadynet.data import Dataset, Images
from steadynet.data.samples import as_labels, as_pixels, collect_samples, yields_samples
from steadynet.errors import UserError
from steadynet.networks import is_onnx
from steadynet.runs.trained import TrainedNetwork, load_trained


def given_network(model: Any, image_shape: tuple[int, ...]) -> nn.Module:
    """Return the network that a user means.

    Args:
        model: A model of PyTorch, a network that :func:`steadynet.load_trained` returned, the path of an ONNX file or
            of a run directory, or an ``onnx.ModelProto``.
        image_shape: The shape of one image, which an ONNX network must take.

    Raises:
        UserError: It is none of these, or cannot be read.
    """
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, TrainedNetwork):
        return model.network
    if isinstance(model, (str, os.PathLike)) and not is_onnx(os.fspath(model)):
        path = Path(model)
        if path.is_file():
            raise UserError(f"{path} is no network: give a model of PyTorch, an ONNX file or a run directory")
        return load_trained(path).network
    if isinstance(model, (str, os.PathLike)) or type(model).__name__ == "ModelProto":
        from steadynet.runs.onnx_network import network_for_images

        return network_for_images(model, image_shape)
    raise UserError(
        f"the model is {type(model).__name__}: give a model of PyTorch, an ONNX file or model, or a run directory"
    )


def given_images(images: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Return images and labels as tensors, in the forms that users have them in.

    Args:
        images: Tensors, arrays or nested lists, (batch, *shape); one image without a batch, if its label is one number;
            or, without labels, a data set or a loader that yields both.
        labels: One whole number per image, or one-hot rows; None if ``images`` yields them.

    Raises:
        UserError: There is not one label per image, or the images are not numbers in [0, 1].
    """
    if labels is None:
        images, labels = _with_labels(images)
    pixels, numbers = as_pixels(images), as_labels(labels)
    if numbers.dim() == 0:
        numbers = numbers[None]
        pixels = pixels[None] if len(pixels) != 1 or pixels.dim() in (1, 3) else pixels
    if len(pixels) != len(numbers) or not len(pixels):
        raise UserError(f"{len(pixels)} images and {len(numbers)} labels: verify needs one label per image")
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0 and high <= 1):
        hint = ": divide them by 255" if low >= 0 and 1 < high <= 255 else ""
        raise UserError(f"pixels lie in [{low:g}, {high:g}]; they must lie in [0, 1]{hint}")
    return pixels, numbers


def in_precision_of(network: nn.Module, images: Tensor) -> Tensor:
    """Return images in the precision that the network computes in, as it would see them."""
    weights = (value for value in (*network.parameters(), *network.buffers()) if value.is_floating_point())
    precision = next((weight.dtype for weight in weights), torch.float32)
    return images if precision not in (torch.float32, torch.float64) else images.to(precision)


def _with_labels(source: Any) -> tuple[Any, Any]:
    if isinstance(source, Dataset):
        source = source.test
    if isinstance(source, Images):
        return source.pixels(), source.labels
    if not yields_samples(source):
        raise UserError("verify needs the labels of the images: verify(model, images, labels, eps)")
    return collect_samples(source)
