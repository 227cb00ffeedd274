"""The properties of all runs for the page: numbers in columns, images and counterexamples as raw bytes."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadynet import data
from steadynet.data import Dataset
from steadynet.errors import UserError, one_line
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.report.collect import Experiment, Run, is_here
from steadynet.runs.trained import load_trained
from steadynet.verification.properties import Verdict
from steadynet.verification.verdicts import Row, load_counterexample

MOST_PICTURES = 5_000  # counterexamples in one page
NUMBERS = ("run", "eps", "index", "label", "verdict", "seconds", "margin", "stable")
OTHERS = ("by", "reason", "picture", "difference", "becomes")
VERDICTS = [verdict.value for verdict in Verdict]


class Gallery:
    """Collects the properties of runs; ``as_data`` is what the page reads.

    A difference is stored as signed bytes, ±127 for ±ε: exact to a hundredth of ε, whatever ε is.
    """

    def __init__(self, most_pictures: int = MOST_PICTURES) -> None:
        self.left = most_pictures
        self.columns: dict[str, list[Any]] = {name: [] for name in (*NUMBERS, *OTHERS)}
        self.pictures: list[str] = []
        self.shapes: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self._datasets: dict[str, Dataset | None] = {}
        self._places: dict[tuple[str, int], int] = {}
        self._shape_of: dict[str, int | None] = {}

    def add(self, experiment: Experiment) -> None:
        """All properties of an experiment's runs."""
        for run in experiment.runs:
            number = len(self.runs)
            facts = {"name": run.name, "dataset": run.dataset, "model": run.model, "method": run.method}
            self.runs.append(facts | {"seed": run.seed, "experiment": experiment.name, "shape": None})
            dataset = self._dataset(run.verdicts[0].data) if run.verdicts else None
            if dataset is not None:
                self.runs[number]["shape"] = self._shape(run.verdicts[0].data, dataset)
            drawn: dict[int, Tensor] = {}
            for row in run.verdicts:
                found = self._add(number, run, row, dataset)
                if found is not None:
                    drawn[len(self.columns["run"]) - 1] = found
            self._name(run, drawn)

    def as_data(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "columns": self.columns,
            "pictures": self.pictures,
            "shapes": self.shapes,
            "runs": self.runs,
            "verdicts": VERDICTS,
            "notes": list(dict.fromkeys(self.notes)),
        }

    def _name(self, run: Run, points: dict[int, Tensor]) -> None:
        """The class that the run's network gives each counterexample, by the place of its property."""
        if not points or not run.folder.weights.is_file():
            return
        try:
            network = load_trained(run.folder.path).network
            with torch.no_grad(), evaluation_mode(network):
                classes = [
                    label for part in torch.stack(list(points.values())).split(512) for label in network(part).argmax(1)
                ]
        except (UserError, OSError) as error:
            self.notes.append(f"What counterexamples are taken for is not known: {one_line(error)}.")
            return
        for place, label in zip(points, classes, strict=True):
            self.columns["becomes"][place] = int(label)

    def _add(self, number: int, run: Run, row: Row, dataset: Dataset | None) -> Tensor | None:
        """A property; its counterexample, if that is drawn."""
        picture = difference = point = None
        if dataset is not None and self.runs[number]["shape"] is not None and row.index < len(dataset.test):
            picture = self._picture(row.data, dataset, row.index)
            if row.counterexample:
                difference, point = self._difference(run, row, dataset)
        values = {
            "run": number,
            "eps": row.eps,
            "index": row.index,
            "label": row.label,
            "verdict": VERDICTS.index(row.verdict.value),
            "seconds": row.seconds,
            "margin": None if row.margin is None else _short(row.margin),
            "stable": None if row.stable_share is None else _short(row.stable_share),
            "by": row.decided_by,
            "reason": row.reason,
            "picture": picture,
            "difference": difference,
            "becomes": None,
        }
        for name, value in values.items():
            self.columns[name].append(value)
        return point

    def _dataset(self, name: str) -> Dataset | None:
        if name not in self._datasets:
            self._datasets[name] = None
            try:
                if not is_here(name):
                    raise UserError(f"the data set {Path(name).name} is not on this machine")
                self._datasets[name] = data.load(name)
            except UserError as error:
                self.notes.append(f"No pictures: {one_line(error)}.")
        return self._datasets[name]

    def _shape(self, name: str, dataset: Dataset) -> int | None:
        """The number of the data set's shape and classes; nothing for what is no image."""
        if name not in self._shape_of:
            shape = dataset.image_shape
            self._shape_of[name] = None
            if len(shape) == 3 and shape[0] in (1, 3):
                self._shape_of[name] = len(self.shapes)
                channels, height, width = shape
                names = [str(entry) for entry in dataset.classes]
                self.shapes.append({"channels": channels, "height": height, "width": width, "classes": names})
            else:
                self.notes.append(f"No pictures of {Path(name).name}: its inputs are no images.")
        return self._shape_of[name]

    def _picture(self, name: str, dataset: Dataset, index: int) -> int:
        if (name, index) not in self._places:
            self._places[name, index] = len(self.pictures)
            pixels = dataset.test.pixels(torch.tensor([index]))[0]
            self.pictures.append(_bytes((pixels * 255).round().to(torch.uint8)))
        return self._places[name, index]

    def _difference(self, run: Run, row: Row, dataset: Dataset) -> tuple[str | None, Tensor | None]:
        if self.left <= 0:
            self.notes.append("Counterexamples beyond the first are not drawn (--pictures sets how many are).")
            return None, None
        try:
            found = load_counterexample(run.folder, row)
        except UserError as error:
            self.notes.append(f"A counterexample is not drawn: {one_line(error)}.")
            return None, None
        pixels = dataset.test.pixels(torch.tensor([row.index]))[0]
        if found.shape != pixels.shape:
            return None, None
        self.left -= 1
        share = (found - pixels) / (row.eps or 1.0)
        return _bytes((share * 127).round().clamp(-127, 127).to(torch.int8)), found


def _bytes(tensor: Tensor) -> str:
    return base64.b64encode(tensor.contiguous().numpy().tobytes()).decode()


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def gallery_of(experiments: Sequence[Experiment], most_pictures: int = MOST_PICTURES) -> Gallery:
    """The properties of all experiments."""
    gallery = Gallery(most_pictures)
    for experiment in experiments:
        gallery.add(experiment)
    return gallery
