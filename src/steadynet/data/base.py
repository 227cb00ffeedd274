"""What every data set's own file declares, and the one way its arrays are found, verified and kept."""

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
from steadynet.data.progress import OnProgress, progress_bar
from steadynet.data.sources import Folder, Source
from steadynet.errors import UserError, one_line
from steadynet.files import disk_errors


@dataclass(frozen=True)
class DatasetPlugin(ABC):
    """A named data set: a subclass states facts; looking, trying sources in order, verifying and storing are here."""

    name: ClassVar[str]
    summary: ClassVar[str]
    licence: ClassVar[str]
    image_shape: ClassVar[tuple[int, int, int]]
    classes: ClassVar[tuple[str, ...]]
    hashes: ClassVar[Mapping[str, str]]  # SHA-256 of each decoded array
    augment: ClassVar[bool] = False
    sources: ClassVar[tuple[Source, ...]] = ()  # in order; the first one's decoder also reads files put in by hand
    published_files: ClassVar[tuple[str, ...]] = ()  # what a user may put in by hand

    @property
    def path(self) -> Path:
        """The file that keeps this set on this machine."""
        return where() / f"{self.name}.npz"

    def is_available(self) -> bool:
        """Whether the set can be loaded without fetching it."""
        return os.path.isfile(self.path)

    def load(self) -> Dataset:
        """The data set: from this machine if it is there and sound, else fetched first."""
        return self._dataset(self._stored() or self._fetched(None))

    def fetch(self, on_progress: OnProgress | None = None) -> Path:
        """Where the set lies, verified; fetched first if need be, with a progress bar unless `on_progress` is given."""
        if self._stored() is None:
            self._fetched(on_progress)
        return self.path

    def _stored(self) -> Arrays | None:
        """The verified arrays of the stored file, or nothing if there is none; a damaged one is warned about."""
        if not self.is_available():
            return None
        try:
            arrays = read_arrays(self.path)
            verify(arrays, self.image_shape, self.hashes)
        except DamagedError as error:
            warnings.warn(f"{self.path} is damaged ({error}): {self.name} is fetched anew.", stacklevel=4)
            return None
        return arrays

    def _fetched(self, on_progress: OnProgress | None) -> Arrays:
        """Verified arrays from the first source that gives them, now stored; or an error that names every source."""
        by_hand = where() / self.name
        with disk_errors(where()):
            where().mkdir(parents=True, exist_ok=True)  # before a long download, not after it
        failures = []
        with nullcontext(on_progress) if on_progress else progress_bar() as progress:
            for source in (Folder(str(by_hand), self.sources[0].decode), *self.sources):
                try:
                    arrays = source.arrays(progress)
                    verify(arrays, self.image_shape, self.hashes)
                except Exception as error:  # whatever is wrong with a source, the next one is tried
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
