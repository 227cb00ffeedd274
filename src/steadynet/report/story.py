"""What the page says first: one sentence with the result, and three examples in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from steadynet.report.gallery import Gallery, GalleryProperty
from steadynet.report.metrics import radius
from steadynet.report.records import Experiment, Run
from steadynet.verification.properties import Verdict

EXAMPLES = 3
NATURAL, NBC = "natural", "nbc"
ATTEMPTS = "proof attempts"


@dataclass(frozen=True)
class Headline:
    """The result of an experiment in one sentence, and what the sentence means."""

    text: str
    meaning: str


@dataclass(frozen=True)
class Example:
    """One property of the gallery, explained. ``number`` is its place in the gallery."""

    number: int
    title: str
    words: list[str]


@dataclass(frozen=True)
class Proofs:
    """How many properties of one method are proved."""

    label: str
    method: str
    proved: int
    properties: int

    @property
    def has_nbc(self) -> bool:
        """Whether the method is NBC or another method joined with it."""
        return NBC in self.method.split("+")

    @property
    def share(self) -> float:
        """The share of proved properties."""
        return self.proved / self.properties


def headline_of(experiment: Experiment) -> Headline:
    """Say in one sentence how many images are proved robust, and compare the methods if there are several.

    Only properties that were decided for all methods of the experiment are counted, if there are such.

    Args:
        experiment: The experiment.

    Returns:
        The sentence. At smoke scale it has no numbers, because they mean nothing.
    """
    if experiment.is_smoke:
        return Headline("A smoke test: every step works, the numbers mean nothing", _smoke_meaning())
    runs = [run for run in experiment.runs if run.verdicts]
    if not runs:
        return _without_verdicts(experiment)
    counted = [_proofs(label, runs) for label in dict.fromkeys(run.label for run in runs)]
    return Headline(_sentence(counted, _noun(runs)), _meaning(runs))


def _smoke_meaning() -> str:
    return (
        "The scale smoke trains networks for a moment and verifies a few images, only to see that every step works. "
        "Use the scale laptop or paper for numbers that mean something."
    )


def _without_verdicts(experiment: Experiment) -> Headline:
    found = [row.value for row in experiment.rows if row.metric == "test_acc_percent" and row.value is not None]
    best = f"{max(found):.1f} % of the test images are classified correctly; " if found else ""
    text = f"{best}nothing is verified yet"
    return Headline(text[0].upper() + text[1:], "steadynet verify decides which images the network is robust on.")


def _proofs(label: str, runs: Sequence[Run]) -> Proofs:
    """Count the proofs of one method, over all its networks."""
    common = _common(runs)
    own = [run for run in runs if run.label == label]
    verdicts = [
        row.verdict for run in own for row in run.verdicts if not common or (run.model, row.eps, row.index) in common
    ]
    return Proofs(label, own[0].variant.method, verdicts.count(Verdict.UNSAT), len(verdicts))


def _common(runs: Sequence[Run]) -> set[tuple[str, float, int]]:
    """The model, radius and image of every property that was decided for all methods."""
    by_label: dict[str, set[tuple[str, float, int]]] = {}
    for run in runs:
        by_label.setdefault(run.label, set()).update((run.model, row.eps, row.index) for row in run.verdicts)
    return set.intersection(*by_label.values())


def _noun(runs: Sequence[Run]) -> str:
    """What is counted: images or other inputs; attempts, where an input is verified more than once for a method."""
    once = all(sum(run.label == other.label for other in runs) == 1 for run in runs)
    if once and len({row.eps for run in runs for row in run.verdicts}) == 1:
        return "images" if _are_images(runs) else "inputs"
    return ATTEMPTS


def _are_images(runs: Sequence[Run]) -> bool:
    """Whether the networks read images, not rows of a table."""
    return all(len(run.folder.read_config().input.image_shape) == 3 for run in runs)


def _sentence(counted: Sequence[Proofs], noun: str) -> str:
    """Compare NBC with the other methods, or else the method with most proofs with the one with fewest."""
    done = "succeeded" if noun == ATTEMPTS else "proved robust"
    ranked = sorted(counted, key=lambda proofs: proofs.share, reverse=True)
    with_nbc = [proofs for proofs in ranked if proofs.has_nbc]
    others = [proofs for proofs in ranked if not proofs.has_nbc]
    first = with_nbc[0] if len(with_nbc) == 1 and others else ranked[0]
    start = f"{first.proved:,} of {first.properties:,} {noun} {done}"
    if len(counted) == 1:
        return start
    if first.has_nbc and others and len(with_nbc) == 1:
        return f"{start} with NBC, {_others(first, others)}"
    last = ranked[-1]
    return f"{start} with {first.label}, {_number(last, first)} with {last.label}"


def _others(first: Proofs, others: Sequence[Proofs]) -> str:
    best = others[0]
    if len(others) == 1 and (best.method == NATURAL or f"{best.method}+{NBC}" == first.method):
        return f"{_number(best, first)} without"
    rest = f" and {_number(others[-1], first)} with {others[-1].label}" if len(others) > 1 else ""
    return f"{_number(best, first)} with {best.label}{rest}"


def _number(proofs: Proofs, first: Proofs) -> str:
    """The count, with its total where that differs from the total of the first method."""
    total = "" if proofs.properties == first.properties else f" of {proofs.properties:,}"
    return f"{proofs.proved:,}{total}"


def _meaning(runs: Sequence[Run]) -> str:
    radii = sorted({row.eps for run in runs for row in run.verdicts})
    models = list(dict.fromkeys(run.model for run in runs))
    sets = list(dict.fromkeys(run.dataset for run in runs))
    where = f"{'Network' if len(models) == 1 else 'Networks'} {', '.join(models)}, data {', '.join(sets)}."
    size = radius(radii[0]) if len(radii) == 1 else "ε"
    if len(radii) > 1:
        where += f" ε is {', '.join(radius(eps) for eps in radii)}."
    per = "per pixel (black is 0, white is 1) gives the image" if _are_images(runs) else "per number gives the input"
    meaning = f"Proved robust means: no change of at most {size} {per} another label. A proof covers every such change."
    return f"{meaning} {where}"


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
        return Example(number, f"A {label} stays a {label}", words)
    read = "another class" if shown.predicted is None else gallery.class_name(number, shown.predicted)
    words = [f"Each pixel changes by {change}. The network {network} then reads {read} instead of {label}."]
    if proof is not None:
        other = gallery.properties[proof]
        seconds = f"{other.seconds:.2g} s"
        words.append(
            f"For the network {_network(gallery, other)} it is proved, in {seconds}, that no such change exists."
        )
    return Example(number, f"{label} turns into {read}", words)


def _network(gallery: Gallery, shown: GalleryProperty) -> str:
    """How a network was trained, in words."""
    names = {NATURAL: "trained without NBC", NBC: "trained with NBC"}
    label = gallery.runs[shown.run].method
    return names.get(label, f"trained with {label}")
