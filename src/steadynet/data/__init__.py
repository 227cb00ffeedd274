"""Data sets: labelled images in [0, 1]. Each has a name and is fetched and verified, or is a user's own file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from steadynet import plugins
from steadynet.data.base import DatasetPlugin
from steadynet.data.cache import where
from steadynet.data.dataset import Dataset, Images, batch_count, batches
from steadynet.errors import UnknownNameError, UserError

__all__ = [
    "Dataset",
    "DatasetPlugin",
    "Images",
    "available",
    "batch_count",
    "batches",
    "load",
    "only_tests",
    "own_file",
    "own_path",
    "where",
]

OWN_FILES = (".npz", ".npy")
ALL_TESTS = "all:"  # before the path of a user's data


def available() -> dict[str, type[DatasetPlugin]]:
    """Return the classes of all data sets by name: ours, and those of other installed packages.

    >>> sorted(available())
    ['cifar10', 'digits', 'fashion-mnist', 'mnist']
    """
    return plugins.discover(sys.modules[__name__], DatasetPlugin, group="steadynet.data")


def load(source: object) -> Dataset:
    """Load a data set.

    Args:
        source: The name of a data set; the path of an ``.npz`` file, of an ``.npy`` file or of a folder of pictures; a
            :class:`DatasetPlugin`; or an object with ``train``, ``test`` (each with ``images`` and ``labels``) and
            ``classes``. With ``all:`` before a path, all its images are test images.

    Returns:
        The data set.

    Raises:
        UserError: There is no such data set, or its content breaks a rule.

    >>> load("digits").image_shape
    (1, 28, 28)
    """
    from steadynet.data import user_data

    if isinstance(source, DatasetPlugin):
        return source.load()
    if not isinstance(source, (str, os.PathLike)):
        return user_data.from_object(source)
    text = os.fspath(source)
    known = available()
    if text in known:
        return known[text]().load()
    path = own_path(text)
    if path.suffix in OWN_FILES or (text and path.is_dir()):
        return user_data.load_own(path, all_are_tests=text.startswith(ALL_TESTS))
    if text and path.exists():
        raise UserError(
            f"{path} is no data set: give an .npz file of arrays X and y, an .npy file, or a folder of pictures."
        )
    if isinstance(source, os.PathLike) or path.suffix or len(path.parts) > 1:
        raise UserError(f"there is no file {path}.")
    if text.startswith(ALL_TESTS):
        raise UserError(
            f"there is no file or folder {path}, and no data set of that name: there are {', '.join(known)}."
        )
    raise UnknownNameError("data set", text, known)


def only_tests(source: str) -> str:
    """Return how to write a user's own file or folder so that :func:`load` makes a test set of all its images.

    >>> only_tests("mine.npz"), only_tests("mnist")
    ('all:mine.npz', 'mnist')
    """
    return source if source in available() or source.startswith(ALL_TESTS) else f"{ALL_TESTS}{source}"


def own_file(source: str) -> Path | None:
    """Return the path of a user's ``.npz`` or ``.npy`` file, or None if ``source`` is the name of a data set.

    >>> own_file("digits"), str(own_file("mine.npz"))
    (None, 'mine.npz')
    """
    path = own_path(source)
    return path if path.suffix in OWN_FILES else None


def own_path(source: str) -> Path:
    """Return the path of a user's own file or folder of images.

    >>> str(own_path("all:mine.npz"))
    'mine.npz'
    """
    return Path(source.removeprefix(ALL_TESTS)).expanduser()
