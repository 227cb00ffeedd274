"""The built-in digits with few images per class, for tests of commands that would spend their time on many."""

from __future__ import annotations

from dataclasses import replace

import torch

from steadynet.data.dataset import Dataset, Images
from steadynet.data.digits import Digits

TRAIN, TEST = 60, 10  # images of each class
load_all = Digits.load


def load_few(self: Digits) -> Dataset:
    digits = load_all(self)
    return replace(digits, train=first(digits.train, TRAIN), test=first(digits.test, TEST))


def first(images: Images, count: int) -> Images:
    """The first images of each class, in the order of the data set."""
    return images.subset(torch.sort(images.first_of_each_class(count)).values)
