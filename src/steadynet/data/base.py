"""The base class of all data sets: it finds, fetches, verifies and stores their arrays."""

from __future__ import annotations

import os
import warnings
from abc import ABC
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from steadynet.data.cache import (
    Arrays,
    DamagedError,
    read_arrays,
    verify,
    where,
    write_arrays,
)
from steadynet.data.dataset import Dataset, Images
from steadynet.data.progress import OnProgress, announce, progress_bar
from steadynet.data.sources import Folder, Source
from steadynet.errors import UserError, one_line
from steadynet.files import disk_errors


@dataclass(frozen=True)
class DatasetPlugin(ABC):
    """A data set with a name.

    A subclass only states facts about the data set. This class finds the data on the machine, fetches it from the first
    source that works, verifies it and stores it. A data set without ``sources`` comes with its package: its ``path`` is
    a file of that package.

    Attributes:
        name: The name that ``--data`` takes.
        summary: One line for ``steadynet list data``.
        licence: Who made the data, and the licence.
        image_shape: The shape of one image, (channels, height, width).
        classes: The names of the classes; label ``i`` means ``classes[i]``.
        hashes: The SHA-256 of each of the four arrays: train_images, train_labels, test_images, test_labels.
        augment: Whether training should shift and mirror the images.
        sources: Where to fetch the data, in the order to try. The decoder of the first source also reads the files that
            a user puts in by hand.
        published_files: The names of the files that a user may put in by hand.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    licence: ClassVar[str]
    image_shape: ClassVar[tuple[int, int, int]]
    classes: ClassVar[tuple[str, ...]]
    hashes: ClassVar[Mapping[str, str]]
    augment: ClassVar[bool] = False
    sources: ClassVar[tuple[Source, ...]] = ()
    published_files: ClassVar[tuple[str, ...]] = ()

    @property
    def path(self) -> Path:
        """The file that holds this data set on this machine."""
        return where() / f"{self.name}.npz"

    def is_available(self) -> bool:
        """Whether the data set can be loaded without fetching it."""
        return os.path.isfile(self.path)

    def load(self) -> Dataset:
        """Load the data set; fetch it first if it is not on this machine.

        Raises:
            UserError: The data set cannot be fetched, or the file of a package is damaged.
        """
        return self._dataset(self._stored() or self._fetched(None))

    def fetch(self, on_progress: OnProgress | None = None) -> Path:
        """Make sure that the data set is on this machine, and verify it.

        Args:
            on_progress: Called while a file is downloaded. Unless given, a line on stderr says that the data set is
                fetched, with a progress bar if stderr is a terminal.

        Returns:
            The file that holds the data set.

        Raises:
            UserError: The data set cannot be fetched, or the file of a package is damaged.
        """
        if self._stored() is None:
            self._fetched(on_progress)
        return self.path

    def _stored(self) -> Arrays | None:
        """Return the verified arrays of the stored file, or None if the data set must be fetched."""
        if self.sources and not self.is_available():
            return None
        try:
            arrays = read_arrays(self.path)
            verify(arrays, self.image_shape, self.hashes)
        except DamagedError as error:
            if not self.sources:
                raise UserError(f"{self.path} is damaged ({error}): install the package it belongs to again") from error
            warnings.warn(f"{self.path} is damaged ({error}): {self.name} is fetched again.", stacklevel=4)
            return None
        return arrays

    def _fetched(self, on_progress: OnProgress | None) -> Arrays:
        """Store and return the verified arrays of the first source that works; the error names every source."""
        by_hand = where() / self.name
        with disk_errors(where()):
            where().mkdir(parents=True, exist_ok=True)  # an error here should come before a long download
        failures = []
        if on_progress is None:
            announce(f"fetching {self.name} into {where()}, as it is not on this machine yet")
        with nullcontext(on_progress) if on_progress else progress_bar() as progress:
            for source in (Folder(str(by_hand), self.sources[0].decode), *self.sources):
                try:
                    arrays = source.arrays(progress)
                    verify(arrays, self.image_shape, self.hashes)
                except Exception as error:  # whatever fails, the next source is tried
                    failures.append(f"{source} ({one_line(error)})")
                    continue
                write_arrays(self.path, arrays)
                return arrays
        raise UserError(
            f"cannot get {self.name}; tried {self.path} (missing or damaged), {', '.join(failures)}. "
            f"To put it in by hand, save {', '.join(self.published_files)} in the folder {by_hand}"
        )

    def _dataset(self, arrays: Arrays) -> Dataset:
        train, test = (
            Images(torch.from_numpy(arrays[f"{part}_images"]), torch.from_numpy(arrays[f"{part}_labels"]).long())
            for part in ("train", "test")
        )
        return Dataset(self.name, train, test, self.classes, self.augment)
