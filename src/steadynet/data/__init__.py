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

__all__ = ["Dataset", "DatasetPlugin", "Images", "available", "batch_count", "batches", "load", "own_file", "where"]


def available() -> dict[str, type[DatasetPlugin]]:
    """Return the classes of all data sets by name: ours, and those of other installed packages.

    >>> sorted(available())
    ['cifar10', 'digits', 'fashion-mnist', 'mnist']
    """
    return plugins.discover(sys.modules[__name__], DatasetPlugin, group="steadynet.data")


def load(source: object) -> Dataset:
    """Load a data set.

    Args:
        source: The name of a data set, the path of an ``.npz`` file, a :class:`DatasetPlugin`, or an object with
            ``train``, ``test`` (each with ``images`` and ``labels``) and ``classes``.

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
    path = Path(text).expanduser()
    if own_file(text):
        return user_data.load_npz(path)
    if text and path.exists():
        raise UserError(f"{path} is not an .npz file: a data set of your own is one .npz file of arrays X and y.")
    if isinstance(source, os.PathLike) or path.suffix or len(path.parts) > 1:
        raise UserError(f"there is no file {path}.")
    raise UnknownNameError("data set", text, known)


def own_file(source: str) -> Path | None:
    """Return the path of a user's ``.npz`` file, or None if ``source`` is the name of a data set.

    >>> own_file("digits"), str(own_file("mine.npz"))
    (None, 'mine.npz')
    """
    path = Path(source).expanduser()
    return path if path.suffix == ".npz" else None
