"""Data sets and loaders of other libraries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from steadynet import data
from steadynet.data.samples import as_labels, as_pixels, collect_samples
from steadynet.errors import UserError

IMAGES, LABELS = torch.rand(10, 1, 4, 4), torch.arange(10) % 2


@pytest.mark.parametrize("batch_size", [1, 3, 10])
def test_loaders_and_sets_of_torch(batch_size):
    torch_set = TensorDataset(IMAGES, LABELS)
    for source in (torch_set, DataLoader(torch_set, batch_size=batch_size)):
        images, labels = collect_samples(source)
        assert np.array_equal(images, IMAGES.numpy())
        assert labels.tolist() == LABELS.tolist()


def test_rows_of_hugging_face():
    """Its tables yield dictionaries with PIL pictures; a colour picture has its channels last."""
    picture = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))
    images, labels = collect_samples([{"image": picture, "label": 1}])
    assert images.shape == (1, 3, 2, 4)
    assert images[0, :, 0, 0].tolist() == [0, 1, 2]
    assert labels.tolist() == [1]


@pytest.mark.parametrize(
    ("source", "message"), [([], "empty"), ([3], "not pairs"), ([{"a": 1}], "an image and a label are needed")]
)
def test_what_yields_no_samples(source, message):
    with pytest.raises(UserError, match=message):
        collect_samples(source)


def test_a_torch_set_is_a_data_set():
    found = data.load(TensorDataset(IMAGES, LABELS))
    assert (len(found.train), len(found.test)) == (8, 2)
    both = data.load({"train": TensorDataset(IMAGES, LABELS), "test": DataLoader(TensorDataset(IMAGES, LABELS))})
    assert (len(both.train), len(both.test)) == (10, 10)


def test_labels_and_pixels():
    assert as_labels(np.eye(3)[[2, 0]]).tolist() == [2, 0]
    assert as_labels(torch.tensor([[1], [0]])).tolist() == [1, 0]
    assert as_pixels([[0.5]]).dtype == torch.float64
    for bad in ([0.5], [[1, 1]], "many"):
        with pytest.raises(UserError, match="whole number"):
            as_labels(bad)
    with pytest.raises(UserError, match="uint8"):
        as_pixels([[1, 2]])
