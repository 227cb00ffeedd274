"""digits: a small part of MNIST that comes with the package, so that nothing has to be downloaded to try it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from steadynet.data.base import DatasetPlugin
from steadynet.data.cache import Arrays
from steadynet.data.dataset import Dataset, Images

EMBEDDED_FILE = Path(__file__).with_name("digits.npz")


@dataclass(frozen=True)
class Digits(DatasetPlugin):
    """4,000 training and 1,000 test images of MNIST: the first 400 and 100 of each class, in the order of MNIST."""

    name: ClassVar[str] = "digits"
    summary: ClassVar[str] = "the first of each class of MNIST, built in; 4,000 training, 1,000 test"
    licence: ClassVar[str] = "MNIST by Yann LeCun and Corinna Cortes, CC BY-SA 3.0"
    image_shape: ClassVar[tuple[int, int, int]] = (1, 28, 28)
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    hashes: ClassVar[Mapping[str, str]] = {
        "train_images": "c6aa175e058d8ef3a96fb00bfccdb5549d00e147e72c47b79c3a0907d44d7d89",
        "train_labels": "39bbc0270774c345707a1de9a38fd0744b26e43dfac434a914041a8deceddb72",
        "test_images": "6973118ee26132cec5e8bca46303f598e8d7f3fd72a7056c43f828e761c432f0",
        "test_labels": "dd09f7c420b0ae3b12e27577950099656961d334160a05f57159510b1011915e",
    }

    @property
    def path(self) -> Path:
        """The file of this package that holds the data set."""
        return EMBEDDED_FILE


def make_digits(mnist: Dataset) -> Arrays:
    """Cut the four arrays of digits from MNIST; ``np.savez_compressed(EMBEDDED_FILE, **arrays)`` stores them."""

    def first(part: Images, count: int) -> Images:
        return part.subset(part.first_of_each_class(count).sort().values)

    train, test = first(mnist.train, 400), first(mnist.test, 100)
    return {
        "train_images": train.images.numpy(),
        "train_labels": train.labels.numpy().astype(np.uint8),
        "test_images": test.images.numpy(),
        "test_labels": test.labels.numpy().astype(np.uint8),
    }
