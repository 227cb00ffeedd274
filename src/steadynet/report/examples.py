"""The examples of the page: three properties with their pictures, explained in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from steadynet.report.gallery import Gallery, GalleryProperty
from steadynet.report.headline import NATURAL, NBC
from steadynet.report.metrics import radius
from steadynet.report.records import Experiment
from steadynet.runs.config import IMPORTED
from steadynet.verification.properties import Verdict

EXAMPLES = 3


@dataclass(frozen=True)
class Example:
    """One property of the gallery, explained. ``number`` is its place in the gallery."""

    number: int
    title: str
    words: list[str]


def examples_of(gallery: Gallery, experiment: Experiment) -> list[Example]:
    """Choose up to three properties of an experiment that show best what robustness is, and explain them.

    An image that one network is fooled on and another is proved robust on comes first, then other images that a network
    is fooled on, then proofs. Images of different classes are preferred. A misclassified image is never chosen.

    Args:
        gallery: The gallery that holds the experiment's properties.
        experiment: The experiment.

    Returns:
        The examples, the best one first.
    """
    own = [
        number
        for number, shown in enumerate(gallery.properties)
        if gallery.runs[shown.run].experiment == experiment.name and shown.picture is not None
    ]
    fooled = [number for number in own if gallery.properties[number].is_fooled]
    proofs = _Proved(gallery, own)
    candidates = [number for number in fooled if proofs.of_same(number)] + fooled
    candidates += [number for number in own if gallery.properties[number].verdict is Verdict.UNSAT]
    chosen = list(_distinct(gallery, dict.fromkeys(candidates)))[:EXAMPLES]
    return [_example(gallery, number, proofs.of_same(number)) for number in chosen]


class _Proved:
    """The proved properties, found by their network's model, image and radius."""

    def __init__(self, gallery: Gallery, numbers: Iterable[int]) -> None:
        self._gallery = gallery
        self._found: dict[tuple[str, int, float], int] = {}
        for number in numbers:
            if gallery.properties[number].verdict is Verdict.UNSAT:
                self._found.setdefault(self._place(number), number)

    def of_same(self, number: int) -> int | None:
        """The number of a proof for another network of the same model, on the same image and at the same radius."""
        found = self._found.get(self._place(number))
        return None if found == number else found

    def _place(self, number: int) -> tuple[str, int, float]:
        shown = self._gallery.properties[number]
        return self._gallery.runs[shown.run].model, shown.index, shown.eps


def _distinct(gallery: Gallery, numbers: Iterable[int]) -> Iterator[int]:
    """First one property per class, then the others; each image once."""
    rest, classes, images = [], set(), set()
    for number in numbers:
        shown = gallery.properties[number]
        if shown.label in classes:
            rest.append(number)
            continue
        classes.add(shown.label)
        images.add(shown.index)
        yield number
    for number in rest:
        if gallery.properties[number].index not in images:
            images.add(gallery.properties[number].index)
            yield number


def _example(gallery: Gallery, number: int, proof: int | None) -> Example:
    shown = gallery.properties[number]
    label, change = gallery.class_name(number, shown.label), f"at most {radius(shown.eps)}"
    network = _network(gallery, shown)
    if not shown.is_fooled:
        words = [
            f"It is proved that the network {network} reads {label} however the pixels change by {change} each.",
            f"The proof took {shown.seconds:.2g} s.",
        ]
        return Example(number, f"“{label}” stays “{label}”", words)
    read = "another class" if shown.predicted is None else gallery.class_name(number, shown.predicted)
    words = [f"Each pixel changes by {change}. The network {network} then reads {read} instead of {label}."]
    if proof is not None:
        other = gallery.properties[proof]
        seconds = f"{other.seconds:.2g} s"
        words.append(
            f"For the network {_network(gallery, other)} it is proved, in {seconds}, that no such change exists."
        )
    return Example(number, f"“{label}” is read as “{read}”", words)


def _network(gallery: Gallery, shown: GalleryProperty) -> str:
    """How a network was trained, in words; the file of one that was trained elsewhere."""
    run = gallery.runs[shown.run]
    names = {NATURAL: "trained without NBC", NBC: "trained with NBC", IMPORTED: run.model}
    return names.get(run.method, f"trained with {run.method}")
