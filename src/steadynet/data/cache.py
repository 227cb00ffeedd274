"""The folder that holds the fetched data sets, one ``.npz`` file of four arrays per data set."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from steadynet.errors import one_line
from steadynet.files import write_atomically

Arrays = Mapping[str, NDArray[np.uint8]]  # images are (N, C, H, W), labels (N,)
ARRAY_NAMES = ("train_images", "train_labels", "test_images", "test_labels")
STALE_AFTER_SECONDS = 3600
MAX_ARRAY_BYTES = 4 * 2**30  # of all arrays of a file that are read, decompressed


class DamagedError(Exception):
    """A file does not hold the arrays of the data set; the message says why."""


def where() -> Path:
    """Return the folder of fetched data sets: $STEADYNET_DATA if set, otherwise a folder in the user's cache."""
    chosen = os.environ.get("STEADYNET_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("steadynet", appauthor=False) / "data"


def read_npz(path: Path, wanted: Collection[str]) -> dict[str, NDArray[Any]]:
    """Read an ``.npz`` file.

    Args:
        path: The file.
        wanted: The names of the arrays to read. The other arrays are listed, but empty.

    Raises:
        DamagedError: The file cannot be read, or its arrays are too large.
    """
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is not an .npz file")
            _check_size(file, wanted)
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return {name: np.asarray(stored[name] if name in wanted else ()) for name in stored.files}
    except Exception as error:  # zipfile and numpy raise a dozen kinds of exceptions for damaged files
        raise DamagedError(one_line(error)) from error


def _check_size(file: BinaryIO, wanted: Collection[str]) -> None:
    """Refuse arrays that would fill the memory: a small file can hold large ones, and say that they are larger still.

    A file in a zip archive never gives more bytes than the archive says, so that a wrong size there is an error.
    """
    total = 0
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.filename.removesuffix(".npy") not in wanted:
                continue
            with archive.open(entry) as member:
                total += max(entry.file_size, _announced_bytes(member))
    if total > MAX_ARRAY_BYTES:
        raise ValueError(f"its arrays have {total / 2**30:.1f} GiB, which is more than {MAX_ARRAY_BYTES / 2**30:g} GiB")


def _announced_bytes(member: IO[bytes]) -> int:
    """Return how many bytes an array has according to its own header."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)
    return math.prod(shape) * dtype.itemsize


def read_arrays(path: Path) -> Arrays:
    """Read the four arrays of a stored data set, without verifying them.

    Raises:
        DamagedError: The file cannot be read, or an array is missing.
    """
    arrays = read_npz(path, ARRAY_NAMES)
    if not all(name in arrays for name in ARRAY_NAMES):
        raise DamagedError(f"it has arrays {', '.join(arrays)}, not {', '.join(ARRAY_NAMES)}")
    return arrays


def verify(arrays: Arrays, image_shape: tuple[int, ...], hashes: Mapping[str, str]) -> None:
    """Check that these are the arrays of a data set.

    Args:
        arrays: The arrays.
        image_shape: The shape that each image must have.
        hashes: The SHA-256 that each array must have.

    Raises:
        DamagedError: A type, a shape or a hash is different.
    """
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.dtype != np.uint8 or labels.dtype != np.uint8:
            raise DamagedError(f"the {part} arrays are {images.dtype} and {labels.dtype}, not uint8")
        if images.shape[1:] != image_shape or labels.shape != images.shape[:1]:
            raise DamagedError(f"the {part} arrays have shapes {images.shape} and {labels.shape}")
    for name in ARRAY_NAMES:
        found = sha256(arrays[name])
        if found != hashes[name]:
            raise DamagedError(f"{name} has SHA-256 {found[:12]}…, not {hashes[name][:12]}…")


def sha256(array: NDArray[np.uint8]) -> str:
    """Compute the SHA-256 of the values of an array, in row-major order.

    >>> sha256(np.zeros(0, dtype=np.uint8))[:8]
    'e3b0c442'
    """
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Store the arrays. The file is replaced in one step, so that it is never incomplete."""
    named: dict[str, Any] = dict(arrays)

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **named)

    remove_stale(path)
    write_atomically(path, save)


def remove_stale(path: Path) -> None:
    """Remove the temporary files that killed writers of ``path`` left behind more than an hour ago."""
    for left_over in path.parent.glob(f".{path.name}.*.tmp"):
        with contextlib.suppress(OSError):
            if left_over.stat().st_mtime < time.time() - STALE_AFTER_SECONDS:
                left_over.unlink()
