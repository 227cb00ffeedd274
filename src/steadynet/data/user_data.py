"""A user's own data, from files or an object, checked before anything else uses it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadynet.data.cache import DamagedError, read_npz
from steadynet.data.channels import check_channels_first, looks_channels_last
from steadynet.data.dataset import Dataset, Images, stratified_split
from steadynet.data.picture_folder import LabelledArrays, read_folder, read_npy
from steadynet.data.samples import collect_samples, yields_samples
from steadynet.errors import UserError, one_line

Array = NDArray[Any]
WHOLE = ("X", "y")
SPLIT = ("X_train", "y_train", "X_test", "y_test")
HELD_OUT = 0.2  # the share of each class that becomes the test set, if the file has no test set
HOLD_OUT_SEED = 0


def load_own(path: Path, all_are_tests: bool = False) -> Dataset:
    """Load a user's own data set.

    Args:
        path: An ``.npz`` file with the arrays X_train, y_train, X_test and y_test, or with X and y; an ``.npy`` file
            with its labels beside it; or a folder of pictures (:mod:`steadynet.data.picture_folder`).
        all_are_tests: Make a test set of all images that do not say what they are for. Otherwise a fifth of each class
            becomes the test set, and the rest is for training.

    Raises:
        UserError: The file cannot be read, or an array breaks a rule.
    """
    if path.is_dir():
        return _undivided(read_folder(path), path, "pictures", "labels", all_are_tests)
    if path.suffix == ".npy" and path.exists():
        return _undivided(read_npy(path), path, "images", "labels", all_are_tests)
    arrays = _read(path)
    if all(name in arrays for name in SPLIT):
        train = checked_images(arrays["X_train"], arrays["y_train"], f"{path}: X_train", "y_train")
        test = checked_images(arrays["X_test"], arrays["y_test"], f"{path}: X_test", "y_test")
        class_count = int(train.labels.max()) + 1
        check_sets(train, test, class_count, str(path))
        return Dataset(path.stem, train, test, tuple(str(label) for label in range(class_count)))
    if all(name in arrays for name in WHOLE):
        return _undivided(LabelledArrays(arrays["X"], arrays["y"]), path, *WHOLE, all_are_tests)
    found = ", ".join(arrays) or "none"
    raise UserError(f"{path} needs arrays X and y, or X_train, y_train, X_test and y_test; it has {found}.")


def _undivided(
    arrays: LabelledArrays, path: Path, images_called: str, labels_called: str, all_are_tests: bool
) -> Dataset:
    """Make a data set of images that are not divided into training and test images."""
    whole = checked_images(arrays.images, arrays.labels, f"{path}: {images_called}", labels_called)
    classes = arrays.classes or tuple(str(label) for label in range(int(whole.labels.max()) + 1))
    if all_are_tests:
        return Dataset(path.stem, whole.subset(torch.arange(0)), whole, classes)
    kept, held_out = stratified_split(whole.labels, HELD_OUT, HOLD_OUT_SEED)
    train, test = whole.subset(kept), whole.subset(held_out)
    check_sets(train, test, len(classes), str(path))
    return Dataset(path.stem, train, test, classes)


def from_object(value: Any) -> Dataset:
    """Load a data set from an object.

    Args:
        value: An object with ``train`` and ``test``, each with ``images`` and ``labels``, and with ``classes``. Or a
            dictionary of ``train`` and ``test``, each a data set or loader that yields images with their labels; or one
            such set, of which a fifth of each class becomes the test set.

    Raises:
        UserError: An attribute is missing, or an array breaks a rule.
    """
    name = str(getattr(value, "name", type(value).__name__))
    if isinstance(value, Mapping) and {"train", "test"} <= set(value):
        return _from_samples(value, name)
    if not hasattr(value, "train") and yields_samples(value):
        return _undivided(LabelledArrays(*collect_samples(value)), Path(name), "images", "labels", False)
    try:
        parts = {part: getattr(value, part) for part in ("train", "test")}
        pairs = {part: (_as_array(images.images), _as_array(images.labels)) for part, images in parts.items()}
        classes = tuple(str(label) for label in value.classes)
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"{name} is not a data set ({one_line(error)}): it needs train and test, "
            "each with images and labels, and classes."
        ) from error
    train, test = (checked_images(*pair, f"{name}: {part} images", f"{part} labels") for part, pair in pairs.items())
    check_sets(train, test, len(classes), name)
    return Dataset(name, train, test, classes, bool(getattr(value, "augment", False)))


def _from_samples(parts: Mapping[str, Any], name: str) -> Dataset:
    """Make a data set of two that yield images with their labels."""
    train, test = (
        checked_images(*collect_samples(parts[part]), f"{name}: {part} images", f"{part} labels")
        for part in ("train", "test")
    )
    class_count = int(train.labels.max()) + 1
    check_sets(train, test, class_count, name)
    return Dataset(name, train, test, tuple(str(label) for label in range(class_count)))


def checked_images(images: Array, labels: Array, called: str, labels_called: str) -> Images:
    """Make labelled images from two arrays.

    Args:
        images: (N, C, H, W), (N, H, W) or (N, D); uint8, or floats in [0, 1].
        labels: (N,), integers from 0.
        called: What the images are called in an error message.
        labels_called: What the labels are called in an error message.

    Raises:
        UserError: The arrays break one of these rules.
    """
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise UserError(f"{called}: {labels_called} must be one integer per image, not {_described(labels)}.")
    if images.ndim not in (2, 3, 4):
        raise UserError(f"{called} must be (N, C, H, W), (N, H, W) or (N, D), not {_described(images)}.")
    if len(images) != len(labels):
        raise UserError(f"{called} holds {len(images)} images but {labels_called} {len(labels)} labels.")
    if images.size == 0:
        raise UserError(f"{called} is empty: its shape is {images.shape}.")
    check_channels_first(images.shape[1:], called)
    if labels.min() < 0:
        raise UserError(f"{called}: {labels_called} must be 0 or more, but the smallest is {labels.min()}.")
    pixels = _checked_pixels(images, called)
    shaped = pixels[:, None] if images.ndim == 3 else pixels
    if looks_channels_last(images.shape[1:]):  # of one channel: see check_channels_first
        shaped = shaped.movedim(-1, 1)
    return Images(shaped, torch.from_numpy(labels.astype(np.int64)))


def check_sets(train: Images, test: Images, class_count: int, called: str) -> None:
    """Check that the training and the test set belong together.

    Raises:
        UserError: Image shapes differ, a label is too large, a class has no training images, or the test set is empty.
    """
    if train.images.shape[1:] != test.images.shape[1:]:
        shapes = f"{tuple(train.images.shape[1:])} and {tuple(test.images.shape[1:])}"
        raise UserError(f"{called}: training and test images differ in shape: {shapes}.")
    if class_count < 2:
        raise UserError(f"{called} has fewer than 2 classes: there is nothing to tell apart.")
    largest = max(int(train.labels.max()), int(test.labels.max()) if len(test) else 0)
    if largest >= class_count:
        raise UserError(f"{called} has a label {largest}, but its {class_count} classes are 0 to {class_count - 1}.")
    missing = torch.nonzero(train.labels.bincount(minlength=class_count) == 0).flatten().tolist()
    if missing:
        raise UserError(
            f"{called}: labels must be 0 to {class_count - 1} without gaps, "
            f"but no training image has label {', '.join(map(str, missing[:10]))}."
        )
    if not len(test):
        raise UserError(f"{called} has too few images to hold any out as a test set: give at least 2 of some class.")


def _checked_pixels(images: Array, called: str) -> Tensor:
    """Return the images as a uint8 or float32 tensor."""
    if images.dtype == np.uint8:
        return torch.from_numpy(np.ascontiguousarray(images))
    if not np.issubdtype(images.dtype, np.floating):
        raise UserError(f"{called} must be uint8, or floats in [0, 1], not {images.dtype}.")
    if not np.isfinite(images).all():
        raise UserError(f"{called} holds values that are not finite numbers (NaN or infinity).")
    low, high = images.min(), images.max()
    if low < 0 or high > 1:
        raise UserError(f"{called} must lie in [0, 1], but its values go from {low:g} to {high:g}.")
    return torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))


def _read(path: Path) -> Mapping[str, Array]:
    """Read the arrays X… and y… of a file."""
    if not path.exists():
        raise UserError(f"there is no file {path}.")
    try:
        return read_npz(path, (*WHOLE, *SPLIT))
    except DamagedError as error:
        if "allow_pickle" in str(error):
            raise UserError(f"{path} holds pickled Python objects: store plain arrays of numbers.") from error
        raise UserError(f"{path} cannot be read: {error}; make one with numpy.savez.") from error


def _as_array(value: Any) -> Array:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _described(array: Array) -> str:
    return f"an array of {array.dtype} of shape {array.shape}"
