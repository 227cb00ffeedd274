"""Images from other libraries: anything that yields pairs of an image and its label.

This is what data sets and loaders of ``torch.utils.data``, those of torchvision, and tables of Hugging Face's
``datasets`` have in common. None of these libraries is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadynet.errors import UserError

IMAGE_KEYS = ("image", "img", "pixel_values", "x")
LABEL_KEYS = ("label", "labels", "fine_label", "y")


def yields_samples(source: Any) -> bool:
    """Return whether an object yields pairs of an image and a label: a data set, or a loader of batches."""
    if isinstance(source, (Tensor, np.ndarray, list, tuple, str, Mapping)):
        return False
    return hasattr(source, "__getitem__") or hasattr(source, "__iter__")


def collect_samples(source: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Collect all images and labels of a data set or loader.

    Args:
        source: An object that yields (image, label), batches of both, or dictionaries with both. Images are tensors,
            arrays or PIL pictures; pictures with the channels last become (C, H, W).

    Returns:
        The images (N, *shape) and the labels (N,).

    Raises:
        UserError: It yields something else, or nothing.

    >>> images, labels = collect_samples([(torch.zeros(1, 2, 2), 3), (torch.ones(1, 2, 2), 5)])
    >>> images.shape, labels
    ((2, 1, 2, 2), array([3, 5]))
    """
    images: list[NDArray[Any]] = []
    labels: list[NDArray[Any]] = []
    for sample in _iterate(source):
        image, label = (_as_array(part) for part in _pair(sample, source))
        if label.ndim == 0:  # one image, not a batch
            image, label = image[None], label[None]
        images.append(image)
        labels.append(label)
    if not images:
        raise UserError(f"{_called(source)} is empty")
    shapes = sorted({image.shape[1:] for image in images})
    if len(shapes) > 1:
        raise UserError(f"{_called(source)} has images of different shapes: {shapes[0]} and {shapes[1]}")
    return np.concatenate(images), np.concatenate(labels)


def _iterate(source: Any) -> Iterator[Any]:
    if hasattr(source, "__iter__"):
        iterable: Iterable[Any] = source
        yield from iterable
        return
    for index in range(len(source)):
        yield source[index]


def _pair(sample: Any, source: Any) -> tuple[Any, Any]:
    if isinstance(sample, Mapping):
        image = next((sample[key] for key in IMAGE_KEYS if key in sample), None)
        label = next((sample[key] for key in LABEL_KEYS if key in sample), None)
        if image is not None and label is not None:
            return image, label
        raise UserError(f"{_called(source)} yields {', '.join(map(str, sample))}: an image and a label are needed")
    if isinstance(sample, (tuple, list)) and len(sample) == 2:
        return sample[0], sample[1]
    raise UserError(f"{_called(source)} yields {type(sample).__name__}, not pairs of an image and its label")


def _as_array(value: Any) -> NDArray[Any]:
    """Return a tensor, array, picture or number as an array; a picture gets its channels first."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    array = np.asarray(value)
    if hasattr(value, "getbands"):  # a PIL picture
        return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))
    return array


def _called(source: Any) -> str:
    return f"the {type(source).__name__}"


def as_pixels(images: Any) -> Tensor:
    """Return images as a tensor of floats; whole numbers of 8 bits become numbers in [0, 1].

    >>> as_pixels(np.array([[0, 255]], dtype=np.uint8))
    tensor([[0., 1.]])
    """
    try:
        tensor = images.detach().cpu() if isinstance(images, Tensor) else torch.from_numpy(np.array(images))
    except (TypeError, ValueError) as error:
        raise UserError(f"the images are {type(images).__name__}, not an array of numbers") from error
    if tensor.dtype == torch.uint8:
        return tensor.to(torch.float32) / 255
    if not tensor.is_floating_point():
        raise UserError(f"the images are {str(tensor.dtype).removeprefix('torch.')}: give uint8, or floats in [0, 1]")
    return tensor


def as_labels(labels: Any) -> Tensor:
    """Return labels as whole numbers, one per image. One-hot labels become the numbers of their classes.

    Raises:
        UserError: They are something else.

    >>> as_labels([[0, 1, 0], [1, 0, 0]]), as_labels([2.0])
    (tensor([1, 0]), tensor([2]))
    """
    try:
        tensor = labels.detach().cpu() if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
    except (TypeError, ValueError) as error:
        raise UserError(f"the labels are {type(labels).__name__}, not one whole number per image") from error
    if tensor.dim() == 2 and tensor.shape[1] == 1:
        tensor = tensor[:, 0]
    if tensor.dim() == 2 and bool(((tensor == 0) | (tensor == 1)).all()) and bool((tensor.sum(1) == 1).all()):
        return tensor.argmax(1)
    if tensor.dim() > 1:
        raise UserError(f"the labels have the shape {tuple(tensor.shape)}: give one whole number per image")
    if tensor.is_floating_point() and not bool((tensor == tensor.round()).all()):
        raise UserError("the labels are not whole numbers: give one whole number per image")
    return tensor.to(torch.int64)
