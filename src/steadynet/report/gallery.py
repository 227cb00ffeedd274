"""The gallery: every verified property of all runs, with its image and its counterexample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.errors import UserError, one_line
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.report.data_sets import load_here
from steadynet.report.pictures import Pictures, PictureShape
from steadynet.report.records import Experiment, Run
from steadynet.runs.trained import load_trained
from steadynet.verification.guarantees import describe_guarantee
from steadynet.verification.proofs.of_run import proofs_of
from steadynet.verification.properties import Verdict
from steadynet.verification.verdicts import Row

MAX_PICTURES = 5_000  # counterexamples on one page


@dataclass(frozen=True)
class GalleryRun:
    """A run whose properties are in the gallery. ``shape`` is the number of its picture shape, if it has one."""

    name: str
    dataset: str
    model: str
    method: str
    seed: int
    experiment: str
    shape: int | None


@dataclass(frozen=True)
class GalleryProperty:
    """One verified property. ``run`` and ``picture`` are numbers in the lists of the gallery."""

    run: int
    eps: float
    index: int
    label: int
    verdict: Verdict
    seconds: float
    margin: float | None
    stable_share: float | None
    decided_by: str
    reason: str
    guarantee: str  # what the verdict rests on, in words
    picture: int | None
    proof: str = ""  # whether its proof was checked, in words; empty if there is none
    difference: str | None = None  # as ``Counterexample`` stores it; None if the image itself is the counterexample
    predicted: int | None = None  # the class that the network gives the counterexample

    @property
    def is_fooled(self) -> bool:
        """Whether a change of the image, which can be drawn, gives it another label."""
        return self.verdict is Verdict.SAT and self.difference is not None


@dataclass(frozen=True)
class Gallery:
    """All verified properties of a report, and what their pictures are drawn from."""

    runs: list[GalleryRun]
    properties: list[GalleryProperty]
    pictures: list[str]
    shapes: list[PictureShape]
    notes: list[str]

    def class_name(self, number: int, label: int) -> str:
        """The name of a class of the data set that a property is about."""
        shape = self.runs[self.properties[number].run].shape
        classes = () if shape is None else self.shapes[shape].classes
        return classes[label] if label < len(classes) else str(label)


def gallery_of(experiments: Sequence[Experiment], max_pictures: int = MAX_PICTURES) -> Gallery:
    """Collect the properties of all runs of these experiments.

    Args:
        experiments: The experiments to show.
        max_pictures: How many counterexamples to draw at most.

    Returns:
        The gallery. Its notes say why pictures are missing, if any are.
    """
    pictures = Pictures(max_pictures)
    runs: list[GalleryRun] = []
    properties: list[GalleryProperty] = []
    for experiment in experiments:
        for run in experiment.runs:
            shape = pictures.shape(run.verdicts[0].data) if run.verdicts else None
            properties += _properties(run, len(runs), pictures)
            runs.append(GalleryRun(run.name, run.dataset, run.model, run.label, run.seed, experiment.name, shape))
    return Gallery(runs, properties, pictures.images, pictures.shapes, list(dict.fromkeys(pictures.notes)))


def _properties(run: Run, number: int, pictures: Pictures) -> list[GalleryProperty]:
    """The properties of one run, with the predicted classes of their counterexamples."""
    properties: list[GalleryProperty] = []
    points: dict[int, Tensor] = {}
    for place, row in enumerate(run.verdicts):
        shown = _property(row, number, pictures.image(row.data, row.index))
        found = pictures.counterexample(run, row) if row.counterexample and shown.picture is not None else None
        if found is not None:
            points[place] = found.point
            shown = replace(shown, difference=found.difference)
        properties.append(shown)
    try:
        predicted = _predicted(run, points)
    except (UserError, OSError) as error:
        pictures.notes.append(f"The predicted classes of counterexamples are not known: {one_line(error)}.")
        predicted = {}
    proofs = _proofs(run, pictures)
    return [
        replace(shown, predicted=predicted.get(place), proof=proofs.get((shown.eps, shown.index), ""))
        for place, shown in enumerate(properties)
    ]


def _proofs(run: Run, pictures: Pictures) -> dict[tuple[float, int], str]:
    """What is known of the proof of each property that has one."""
    if not run.folder.proofs.is_dir() or not run.folder.weights.is_file() or not run.verdicts:
        return {}
    try:
        test = load_here(run.verdicts[-1].data).test
        found = proofs_of(load_trained(run.folder.path), test, run.verdicts)
    except (UserError, OSError) as error:
        pictures.notes.append(f"Proofs were not checked: {one_line(error)}.")
        return {}
    return {place: proof.described() for place, proof in found.items()}


def _property(row: Row, run: int, picture: int | None) -> GalleryProperty:
    return GalleryProperty(
        run,
        row.eps,
        row.index,
        row.label,
        row.verdict,
        row.seconds,
        row.margin,
        row.stable_share,
        row.decided_by,
        row.reason,
        describe_guarantee(row),
        picture,
    )


def _predicted(run: Run, points: dict[int, Tensor]) -> dict[int, int]:
    """The class that the run's network gives each point; nothing if the run has no network."""
    if not points or not run.folder.weights.is_file():
        return {}
    network = load_trained(run.folder.path).network
    with torch.no_grad(), evaluation_mode(network):
        batches = torch.stack(list(points.values())).split(512)
        classes = [int(label) for batch in batches for label in network(batch).argmax(1)]
    return dict(zip(points, classes, strict=True))
