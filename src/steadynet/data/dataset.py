"""The data set itself: labelled images in [0, 1] for training and test, and how they are split and batched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.data.augmentation import augmented
from steadynet.errors import UserError


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images.

    Attributes:
        images: The images, (N, C, H, W) or (N, D); uint8, or float32 in [0, 1].
        labels: The class of each image, (N,), int64.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Images({len(self)} images of shape {tuple(self.images.shape[1:])})"

    def pixels(self, index: slice | Tensor = slice(None)) -> Tensor:
        """Return images as float32 in [0, 1].

        Args:
            index: Which images; all unless given.

        >>> Images(torch.tensor([[[[0, 51, 255]]]], dtype=torch.uint8), torch.tensor([0])).pixels()
        tensor([[[[0.0000, 0.2000, 1.0000]]]])
        """
        chosen = self.images[index]
        return chosen.to(torch.float32) / 255 if chosen.dtype == torch.uint8 else chosen

    def subset(self, index: Tensor) -> Images:
        """Return the images at these indices, in this order."""
        return Images(self.images[index], self.labels[index])

    def first_of_each_class(self, count: int, class_count: int | None = None, at_most: bool = False) -> Tensor:
        """Return the indices of the first images of each class: the first of every class, then the second, and so on.

        Args:
            count: How many images of each class.
            class_count: How many classes there are; unless given, the largest label tells.
            at_most: Take all images of a class that has fewer.

        Raises:
            UserError: A class has fewer images.

        >>> Images(torch.zeros(5, 1), torch.tensor([1, 1, 0, 0, 1])).first_of_each_class(2)
        tensor([2, 0, 3, 1])
        """
        if count < 1:
            raise UserError(f"cannot take {count} images of each class: take at least 1.")
        if class_count is None:
            class_count = int(self.labels.max()) + 1 if len(self) else 0
        found = [torch.nonzero(self.labels == label).flatten()[:count] for label in range(class_count)]
        if at_most:
            order = torch.cat([torch.arange(len(index)) for index in found] or [torch.empty(0)]).argsort(stable=True)
            return torch.cat([*found, torch.empty(0, dtype=torch.int64)])[order]
        for label, index in enumerate(found):
            if len(index) < count:
                raise UserError(f"class {label} has only {len(index)} images, but {count} of each class are asked for.")
        return torch.stack(found, dim=1).flatten() if found else torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set and a test set with the same classes.

    Attributes:
        name: The name of the data set.
        train: The training images.
        test: The test images.
        classes: The names of the classes; label ``i`` means ``classes[i]``.
        augment: Whether training should shift and mirror the images.
    """

    name: str
    train: Images
    test: Images
    classes: tuple[str, ...]
    augment: bool = False

    def __repr__(self) -> str:
        shown = "x".join(map(str, self.image_shape))
        return (
            f"Dataset({self.name!r}: {len(self.train)} training and {len(self.test)} test images of {shown}, "
            f"{self.class_count} classes)"
        )

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of one image: (C, H, W), or (D,) for flat features."""
        return tuple(self.test.images.shape[1:])

    @property
    def class_count(self) -> int:
        """The number of classes."""
        return len(self.classes)

    def split(self, validation: float, seed: int) -> tuple[Images, Images]:
        """Split the training set into training and validation images. The test set is not touched.

        Args:
            validation: The share of each class that is held out for validation.
            seed: The seed of the random split.

        Returns:
            The training images and the validation images.

        Raises:
            UserError: The share is not at least 0 and below 1.
        """
        if not 0 <= validation < 1:
            raise UserError(f"the validation fraction is {validation}: it must be at least 0 and below 1.")
        kept, held_out = stratified_split(self.train.labels, validation, seed)
        return self.train.subset(kept), self.train.subset(held_out)


def stratified_split(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Split indices into two parts at random, with the same share of every class in each part.

    A class of two or more images has at least one image in each part, unless ``fraction`` is 0.

    Args:
        labels: The class of each image, (N,).
        fraction: The share that is held out.
        seed: The seed of the random split.

    Returns:
        The sorted indices of the images that are kept and of those that are held out.

    >>> [len(part) for part in stratified_split(torch.tensor([0, 0, 0, 0, 1, 1]), 0.5, seed=0)]
    [3, 3]
    """
    generator = torch.Generator().manual_seed(seed)
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in sorted(set(labels.tolist())):
        members = torch.nonzero(labels == label).flatten()
        count = min(max(round(fraction * len(members)), 1 if fraction else 0), len(members) - 1)
        held_out[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    return torch.nonzero(~held_out).flatten(), torch.nonzero(held_out).flatten()


def batches(
    images: Images, batch_size: int, *, order: Tensor | None = None, augment: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate over images in batches; the last batch may be smaller.

    Args:
        images: The images.
        batch_size: The number of images per batch.
        order: The indices of the images, in the order to visit them; all in their own order unless given.
        augment: Whether to shift and mirror the images at random, with the global generator of PyTorch.

    Yields:
        The images, float32 in [0, 1], and their labels, int64.

    Raises:
        UserError: The batch size is below 1.

    >>> [len(labels) for _, labels in batches(Images(torch.zeros(5, 1), torch.zeros(5)), 2)]
    [2, 2, 1]
    """
    if batch_size < 1:
        raise UserError(f"the batch size is {batch_size}: it must be at least 1.")
    order = torch.arange(len(images)) if order is None else order
    for start in range(0, len(order), batch_size):
        index = order[start : start + batch_size]
        pixels = images.pixels(index)
        yield augmented(pixels) if augment else pixels, images.labels[index]


def batch_count(images: Images, batch_size: int) -> int:
    """Return the number of batches that :func:`batches` yields.

    >>> batch_count(Images(torch.zeros(5, 1), torch.zeros(5)), 2)
    3
    """
    return -(-len(images) // batch_size)
