"""What a data set is: labelled images in [0, 1], split into training and test, and cut into batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.data.augmentation import augmented
from steadynet.errors import UserError


@dataclass(frozen=True, eq=False)
class Images:
    """A labelled set: `images` is (N, C, H, W) or (N, D), uint8 or float32 in [0, 1]; `labels` is (N,) int64."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, index: slice | Tensor = slice(None)) -> Tensor:
        """The chosen images as float32 in [0, 1].

        >>> Images(torch.tensor([[[[0, 51, 255]]]], dtype=torch.uint8), torch.tensor([0])).pixels()
        tensor([[[[0.0000, 0.2000, 1.0000]]]])
        """
        chosen = self.images[index]
        return chosen.to(torch.float32) / 255 if chosen.dtype == torch.uint8 else chosen

    def subset(self, index: Tensor) -> Images:
        """The images at these indices, in this order."""
        return Images(self.images[index], self.labels[index])

    def first_of_each_class(self, count: int, class_count: int | None = None) -> Tensor:
        """The indices of the first `count` images of each class, taking turns: one of each class, then the next.

        The classes are 0 to `class_count` - 1, or to the largest label seen.

        >>> Images(torch.zeros(5, 1), torch.tensor([1, 1, 0, 0, 1])).first_of_each_class(2)
        tensor([2, 0, 3, 1])
        """
        if count < 1:
            raise UserError(f"cannot take {count} images of each class: take at least 1.")
        if class_count is None:
            class_count = int(self.labels.max()) + 1 if len(self) else 0
        found = [torch.nonzero(self.labels == label).flatten()[:count] for label in range(class_count)]
        for label, index in enumerate(found):
            if len(index) < count:
                raise UserError(f"class {label} has only {len(index)} images, but {count} of each class are asked for.")
        return torch.stack(found, dim=1).flatten() if found else torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test set over the same classes; `augment` says whether training should shift and mirror."""

    name: str
    train: Images
    test: Images
    classes: tuple[str, ...]
    augment: bool = False

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of one image: (C, H, W), or (D,) for flat features."""
        return tuple(self.train.images.shape[1:])

    @property
    def class_count(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    def split(self, validation: float, seed: int) -> tuple[Images, Images]:
        """(training, validation): the same for the same seed, every class in proportion, the test set untouched."""
        if not 0 <= validation < 1:
            raise UserError(f"the validation fraction is {validation}: it must be at least 0 and below 1.")
        kept, held_out = stratified_split(self.train.labels, validation, seed)
        return self.train.subset(kept), self.train.subset(held_out)


def stratified_split(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """(kept, held out): sorted indices, disjoint and covering, `fraction` of every class held out.

    A class of two or more keeps one at least and, unless `fraction` is 0, gives one at least.

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
    """The images at the indices ``order`` (all, unless given) as (float32 in [0, 1], int64 labels), batch by batch.

    The last batch may be smaller. Augmentation draws from torch's global generator.
    """
    if batch_size < 1:
        raise UserError(f"the batch size is {batch_size}: it must be at least 1.")
    order = torch.arange(len(images)) if order is None else order
    for start in range(0, len(order), batch_size):
        index = order[start : start + batch_size]
        pixels = images.pixels(index)
        yield augmented(pixels) if augment else pixels, images.labels[index]


def batch_count(images: Images, batch_size: int) -> int:
    """How many batches `batches` yields.

    >>> batch_count(Images(torch.zeros(5, 1), torch.zeros(5)), 2)
    3
    """
    return -(-len(images) // batch_size)
