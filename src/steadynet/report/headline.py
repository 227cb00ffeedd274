"""The first sentence of the page: how many images are proved robust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from steadynet.report.metrics import radius
from steadynet.report.records import Experiment, Run
from steadynet.verification.properties import Verdict

NATURAL, NBC = "natural", "nbc"
ATTEMPTS = "proof attempts"


@dataclass(frozen=True)
class Headline:
    """The result of an experiment in one sentence, and what the sentence means."""

    text: str
    meaning: str


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
    runs = _comparable([run for run in experiment.runs if run.verdicts])
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


def _comparable(runs: Sequence[Run]) -> list[Run]:
    """Leave out verdicts on properties that were not decided for all methods, unless nothing would be left."""
    by_label: dict[str, set[tuple[str, float, int]]] = {}
    for run in runs:
        by_label.setdefault(run.label, set()).update((run.model, row.eps, row.index) for row in run.verdicts)
    common = set.intersection(*by_label.values()) if by_label else set()
    if not common:
        return list(runs)
    kept = [
        replace(run, verdicts=[row for row in run.verdicts if (run.model, row.eps, row.index) in common])
        for run in runs
    ]
    return [run for run in kept if run.verdicts]


def _proofs(label: str, runs: Sequence[Run]) -> Proofs:
    """Count the proofs of one method, over all its networks."""
    own = [run for run in runs if run.label == label]
    verdicts = [row.verdict for run in own for row in run.verdicts]
    return Proofs(label, own[0].variant.method, verdicts.count(Verdict.UNSAT), len(verdicts))


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
