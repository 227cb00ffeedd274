"""A user's own data: what is accepted, and the one clear line for everything else."""

from __future__ import annotations

import contextlib
import io
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadynet.data import Dataset, cache, load
from steadynet.data.cache import DamagedError, read_arrays, write_arrays
from steadynet.errors import UserError

IMAGES = np.arange(10 * 2 * 3 * 4, dtype=np.uint8).reshape(10, 2, 3, 4)
LABELS = np.arange(10) % 2


def stored(folder, **arrays):
    np.savez(folder / "own.npz", **arrays)
    return folder / "own.npz"


def test_a_fifth_of_each_class_is_held_out(tmp_path):
    labels = np.array([0] * 10 + [1] * 20)
    dataset = load(stored(tmp_path, X=np.arange(30, dtype=np.uint8).reshape(30, 1, 1, 1), y=labels))
    assert dataset.train.labels.bincount().tolist() == [8, 16]
    assert dataset.test.labels.bincount().tolist() == [2, 4]
    everything = torch.cat([dataset.train.images, dataset.test.images]).flatten()
    assert sorted(everything.tolist()) == list(range(30))
    assert (dataset.name, dataset.classes, dataset.class_count) == ("own", ("0", "1"), 2)
    assert torch.equal(dataset.test.images, load(str(tmp_path / "own.npz")).test.images)


def test_a_given_test_set_is_kept(tmp_path):
    path = stored(tmp_path, X_train=IMAGES, y_train=LABELS, X_test=IMAGES[:3], y_test=LABELS[:3], notes=np.zeros(1))
    dataset = load(path)
    assert np.array_equal(dataset.train.images.numpy(), IMAGES)
    assert np.array_equal(dataset.test.labels.numpy(), LABELS[:3])
    assert dataset.test.labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (IMAGES, (2, 3, 4)),
        (IMAGES[:, 0], (1, 3, 4)),
        (IMAGES[:, 0, 0], (4,)),
        (IMAGES / 255, (2, 3, 4)),
        ((IMAGES / 255).astype(np.float16), (2, 3, 4)),
    ],
)
def test_shapes_and_types(tmp_path, images, shape):
    dataset = load(stored(tmp_path, X=images, y=LABELS))
    assert dataset.image_shape == shape
    assert dataset.train.images.dtype == (torch.uint8 if images.dtype == np.uint8 else torch.float32)
    pixels = dataset.train.pixels()
    assert pixels.dtype == torch.float32
    assert 0 <= pixels.min() <= pixels.max() <= 1


BAD_ARRAYS = [
    ({"a": IMAGES, "b": LABELS}, "needs arrays X and y.*it has a, b"),
    ({"X": IMAGES}, "needs arrays X and y.*it has X"),
    ({}, "it has none"),
    ({"X": IMAGES, "y": LABELS[:9]}, "holds 10 images but y 9 labels"),
    ({"X": IMAGES[:, 0, 0, 0], "y": LABELS}, r"must be \(N, C, H, W\).*shape \(10,\)"),
    ({"X": IMAGES[None], "y": LABELS}, r"must be \(N, C, H, W\).*shape \(1, 10, 2, 3, 4\)"),
    ({"X": IMAGES, "y": np.eye(2)[LABELS]}, r"one integer per image, not an array of float64 of shape \(10, 2\)"),
    ({"X": IMAGES, "y": LABELS.astype(float)}, "one integer per image, not an array of float64"),
    ({"X": IMAGES, "y": LABELS.astype(bool)}, "one integer per image, not an array of bool"),
    ({"X": IMAGES, "y": LABELS - 1}, "0 or more, but the smallest is -1"),
    ({"X": IMAGES, "y": LABELS * 2}, "0 to 2 without gaps, but no training image has label 1"),
    ({"X": IMAGES, "y": LABELS + 1}, "no training image has label 0"),
    ({"X": IMAGES, "y": LABELS * 0}, "fewer than 2 classes"),
    ({"X": IMAGES.astype(np.int64), "y": LABELS}, "must be uint8, or floats.*not int64"),
    ({"X": IMAGES * 1.5, "y": LABELS}, r"must lie in \[0, 1\], but its values go from 0 to 358.5"),
    ({"X": IMAGES / 255 - 0.5, "y": LABELS}, r"go from -0.5 to 0.4"),
    ({"X": np.where(IMAGES == 7, np.nan, 0.5), "y": LABELS}, "not finite"),
    ({"X": np.where(IMAGES == 7, np.inf, 0.5), "y": LABELS}, "not finite"),
    ({"X": IMAGES[:0], "y": LABELS[:0]}, "is empty"),
    (
        {"X": np.zeros((10, 8, 6, 3), dtype=np.uint8), "y": LABELS},
        r"X has its channels last \(height 8, width 6, channels 3\).*numpy.moveaxis\(X, -1, 1\)",
    ),
    ({"X": IMAGES[:, :0], "y": LABELS}, "is empty"),
    ({"X": IMAGES[:2], "y": LABELS[:2]}, "too few images to hold any out"),
    ({"X": IMAGES, "y": LABELS.astype(object)}, "pickled Python objects"),
    (
        {"X_train": IMAGES, "y_train": LABELS, "X_test": IMAGES[:, :1], "y_test": LABELS},
        r"differ in shape: \(2, 3, 4\) and \(1, 3, 4\)",
    ),
    ({"X_train": IMAGES, "y_train": LABELS, "X_test": IMAGES, "y_test": LABELS + 1}, "label 2, but its 2 classes"),
    ({"X_train": IMAGES, "y_train": LABELS, "X_test": IMAGES}, "it has X_train, y_train, X_test"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD_ARRAYS)
def test_bad_arrays_are_one_clear_line(tmp_path, arrays, message):
    with pytest.raises(UserError, match=message) as caught:
        load(stored(tmp_path, **arrays))
    assert "\n" not in str(caught.value)
    assert "own.npz" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("mnits", "did you mean 'mnist'"),
        ("", "unknown data set"),
        ("nowhere.npz", "there is no file nowhere.npz"),
        ("some/where", "there is no file some"),
        ("own.csv", "there is no file own.csv"),
        (".", "holds no pictures"),
        (42, "int is not a data set.*needs train and test"),
        (None, "is not a data set"),
    ],
)
def test_bad_sources_are_one_clear_line(source, message):
    with pytest.raises(UserError, match=message):
        load(source)


@pytest.mark.parametrize("content", [b"", b"X,y\n1,2\n", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_npz(tmp_path, content):
    (tmp_path / "own.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"is not an \.npz file"):
        load(tmp_path / "own.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(UserError, match="holds no pictures"):
        load(tmp_path / "folder.npz")


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_never_crashes(tmp_path_factory, position, change):
    path = stored(tmp_path_factory.getbasetemp(), X=IMAGES, y=LABELS)
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= change
    path.write_bytes(content)
    with contextlib.suppress(UserError):
        dataset = load(path)  # the byte was one that no reader looks at
        assert len(dataset.train) + len(dataset.test) == 10


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_of_a_stored_set_is_damage_or_harmless(tmp_path_factory, position, change):
    path = tmp_path_factory.getbasetemp() / "stored.npz"
    arrays = {"train_images": IMAGES, "train_labels": IMAGES[:, 0, 0, 0], "test_images": IMAGES}
    arrays["test_labels"] = arrays["train_labels"]
    write_arrays(path, arrays)
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= change
    path.write_bytes(content)
    with contextlib.suppress(DamagedError):
        found = read_arrays(path)
        assert all(found[name].tobytes() == array.tobytes() for name, array in arrays.items())


def own(**changes):
    half = SimpleNamespace(images=torch.from_numpy(IMAGES) / 255, labels=LABELS)
    return SimpleNamespace(**{"train": half, "test": half, "classes": ["cat", "dog"], **changes})


def test_an_object_with_the_protocol():
    dataset = load(own(name="pets", augment=True))
    assert isinstance(dataset, Dataset)
    assert (dataset.name, dataset.classes, dataset.augment) == ("pets", ("cat", "dog"), True)
    assert dataset.train.labels.dtype == torch.int64
    assert torch.equal(load(dataset).train.images, dataset.train.images)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": None}, "is not a data set"),
        ({"classes": 2}, "is not a data set"),
        ({"classes": ["cat"]}, "fewer than 2 classes"),
        ({"classes": ["cat", "dog", "cow"]}, "no training image has label 2"),
        ({"test": SimpleNamespace(images=torch.full((1, 2, 3, 4), 2.0), labels=[0])}, "test images must lie in"),
    ],
)
def test_a_bad_object_is_one_clear_line(changes, message):
    with pytest.raises(UserError, match=message):
        load(own(**changes))


def test_arrays_that_would_fill_the_memory_are_one_clear_line(tmp_path, monkeypatch):
    path = tmp_path / "own.npz"
    np.savez_compressed(path, X=np.zeros((1000, 100), np.uint8), y=np.arange(1000) % 2, unused=np.zeros(10**6))
    assert path.stat().st_size < 10_000
    load(path)  # arrays that are not read do not count
    monkeypatch.setattr(cache, "MAX_ARRAY_BYTES", 100_000)
    with pytest.raises(UserError, match=r"its arrays have 0\.0 GiB, which is more than") as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert "own.npz" in str(caught.value)


def test_an_array_that_announces_more_than_it_has_is_one_clear_line(tmp_path):
    """A header of 128 bytes that announces 8 TiB: nothing is allocated for it."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**30, 1024)})
    with zipfile.ZipFile(tmp_path / "own.npz", "w") as archive:
        archive.writestr("X.npy", header.getvalue())
        archive.writestr("y.npy", header.getvalue())
    with pytest.raises(UserError, match=r"16384\.0 GiB, which is more than 4 GiB") as caught:
        load(tmp_path / "own.npz")
    assert "\n" not in str(caught.value)
