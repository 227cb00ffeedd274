"""A user's images as files: a folder of pictures, or an ``.npy`` array with its labels beside it."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from steadynet.errors import UserError, one_line

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp")
TABLES = ("labels.csv", "labels.tsv")
LABEL_FILES = ("labels.npy", "y.npy")


class LabelledArrays(NamedTuple):
    """Images with their labels, not checked yet.

    Attributes:
        images: The images, one per row.
        labels: The label of each image.
        classes: The names of the classes, if the files say them.
    """

    images: NDArray[Any]
    labels: NDArray[Any]
    classes: tuple[str, ...] | None = None


def read_folder(folder: Path) -> LabelledArrays:
    """Read a folder of pictures.

    Args:
        folder: It holds one sub-folder of pictures per class, or pictures and the table ``labels.csv`` with the columns
            ``file`` and ``label``. Sub-folders that are called 0, 1, … have these labels. Other sub-folders are
            numbered in the order of their names, and so are labels in the table that are words.

    Returns:
        The pictures as uint8, (N, H, W) if all are grey and (N, 3, H, W) otherwise.

    Raises:
        UserError: There are no pictures, a picture cannot be read or has another size, or a label is missing.
    """
    table = next((folder / name for name in TABLES if (folder / name).is_file()), None)
    named = _from_table(table) if table else _from_subfolders(folder)
    if not named:
        raise UserError(
            f"{folder} holds no pictures: put them into one sub-folder per class, or add labels.csv (file, label)."
        )
    words = sorted({label for _, label in named})
    if all(word.isdecimal() for word in words):
        numbers, classes = {word: int(word) for word in words}, None
    else:
        numbers, classes = {word: number for number, word in enumerate(words)}, tuple(words)
    images = _stacked([path for path, _ in named])
    return LabelledArrays(images, np.array([numbers[label] for _, label in named], dtype=np.int64), classes)


def read_npy(path: Path) -> LabelledArrays:
    """Read images from an ``.npy`` file, with their labels from ``labels.npy`` or ``y.npy`` in the same folder.

    Raises:
        UserError: A file is missing or cannot be read.
    """
    labels = next((path.with_name(name) for name in LABEL_FILES if path.with_name(name).is_file()), None)
    if labels is None:
        raise UserError(f"{path} holds images only: put their labels into {path.with_name(LABEL_FILES[0])}.")
    try:
        return LabelledArrays(np.load(path, allow_pickle=False), np.load(labels, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} and {labels.name} cannot be read: {one_line(error)}.") from error


def _from_subfolders(folder: Path) -> list[tuple[Path, str]]:
    children = [child for child in sorted(folder.iterdir()) if child.is_dir() and not child.name.startswith(".")]
    return [(path, child.name) for child in children for path in sorted(child.iterdir()) if _is_picture(path)]


def _from_table(table: Path) -> list[tuple[Path, str]]:
    with table.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t" if table.suffix == ".tsv" else ","))
    if not rows or not {"file", "label"} <= set(rows[0]):
        raise UserError(f"{table} needs the columns file and label, with one row per picture.")
    return [(table.parent / (row["file"] or ""), (row["label"] or "").strip()) for row in rows]


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _stacked(paths: Iterable[Path]) -> NDArray[Any]:
    """Read pictures into one array. All are read as grey if every picture is grey, otherwise all in colour."""
    pictures = [(path, _opened(path)) for path in paths]
    grey = all(picture.mode in ("1", "L") for _, picture in pictures)
    first, size = pictures[0][0], pictures[0][1].size
    arrays = []
    for path, picture in pictures:
        if picture.size != size:
            found, wanted = (f"{width}x{height}" for width, height in (picture.size, size))
            raise UserError(f"{path} has {found} pixels, but {first} has {wanted}: all must have the same size.")
        arrays.append(np.asarray(picture.convert("L" if grey else "RGB")))
    stacked = np.stack(arrays)
    return stacked if grey else np.ascontiguousarray(stacked.transpose(0, 3, 1, 2))


def _opened(path: Path) -> Image.Image:
    try:
        with Image.open(path) as picture:
            picture.load()
            return picture.copy()
    except FileNotFoundError as error:
        raise UserError(f"there is no picture {path}.") from error
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} cannot be read as a picture: {one_line(error)}.") from error
