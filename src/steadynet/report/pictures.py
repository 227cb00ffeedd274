"""The images and counterexamples of the gallery, as bytes that the page's script draws."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from steadynet.data import Dataset
from steadynet.errors import UserError, one_line
from steadynet.report.data_sets import load_here
from steadynet.report.records import Run
from steadynet.verification.verdicts import Row, load_counterexample


@dataclass(frozen=True)
class PictureShape:
    """The shape of a data set's images, and the names of its classes."""

    channels: int
    height: int
    width: int
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Counterexample:
    """An input that refutes a property, and its difference to the image, as the page stores it.

    ``difference`` is base64 of signed bytes, where ±127 stands for ±ε. The error is below one hundredth of ε. It is
    None if the image itself is the input.
    """

    point: Tensor
    difference: str | None


class Pictures:
    """All pictures of a report. Every image and every shape is stored once.

    ``notes`` collects, for the reader, why some pictures are missing.
    """

    def __init__(self, max_counterexamples: int) -> None:
        self.images: list[str] = []  # base64 of unsigned bytes (channels, height, width)
        self.shapes: list[PictureShape] = []
        self.notes: list[str] = []
        self._left = max_counterexamples
        self._datasets: dict[str, Dataset | None] = {}
        self._image_numbers: dict[tuple[str, int], int] = {}
        self._shape_numbers: dict[str, int | None] = {}

    def shape(self, source: str) -> int | None:
        """The number of the shape of a data set's images; None if it has no images that can be drawn."""
        if source not in self._shape_numbers:
            dataset = self._dataset(source)
            self._shape_numbers[source] = None if dataset is None else self._add_shape(source, dataset)
        return self._shape_numbers[source]

    def image(self, source: str, index: int) -> int | None:
        """The number of a test image; None if it cannot be drawn."""
        dataset = self._dataset(source)
        if dataset is None or self.shape(source) is None or index >= len(dataset.test):
            return None
        if (source, index) not in self._image_numbers:
            self._image_numbers[source, index] = len(self.images)
            self.images.append(_as_base64((_pixels(dataset, index) * 255).round().to(torch.uint8)))
        return self._image_numbers[source, index]

    def counterexample(self, run: Run, row: Row) -> Counterexample | None:
        """The counterexample of a property; None if it cannot be drawn or if there are too many already."""
        dataset = self._dataset(row.data)
        if dataset is None:
            return None
        if self._left <= 0:
            self.notes.append("Some counterexamples are not drawn: --pictures sets the maximum.")
            return None
        try:
            point = load_counterexample(run.folder, row)
        except UserError as error:
            self.notes.append(f"A counterexample is not drawn: {one_line(error)}.")
            return None
        pixels = _pixels(dataset, row.index)
        if point.shape != pixels.shape:
            return None
        self._left -= 1
        steps = ((point - pixels) / (row.eps or 1.0) * 127).round().clamp(-127, 127).to(torch.int8)
        return Counterexample(point, _as_base64(steps) if steps.any() else None)

    def _dataset(self, source: str) -> Dataset | None:
        if source not in self._datasets:
            self._datasets[source] = None
            try:
                self._datasets[source] = load_here(source)
            except UserError as error:
                self.notes.append(f"No pictures: {one_line(error)}.")
        return self._datasets[source]

    def _add_shape(self, source: str, dataset: Dataset) -> int | None:
        shape = dataset.image_shape
        if len(shape) != 3 or shape[0] not in (1, 3):
            self.notes.append(f"No pictures of {Path(source).name}: its inputs are not images.")
            return None
        self.shapes.append(PictureShape(*shape, tuple(str(name) for name in dataset.classes)))
        return len(self.shapes) - 1


def _pixels(dataset: Dataset, index: int) -> Tensor:
    return dataset.test.pixels(torch.tensor([index]))[0]


def _as_base64(tensor: Tensor) -> str:
    return base64.b64encode(tensor.contiguous().numpy().tobytes()).decode()
