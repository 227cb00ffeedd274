"""Gather the evidence of regions and claims beyond the label in an ε-box, and of radii; check that it belongs together.

As for ε-boxes, every key is computed again from the files that are there now, and every counterexample is replayed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import torch

from steadynet import data
from steadynet.data import Images
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.report.data_sets import load_here
from steadynet.report.evidence import ImageRadius, PropertyEvidence, RadiusEvidence, RadiusShare
from steadynet.report.evidence_parts import Names, property_evidence, sample_of
from steadynet.report.hashes import file_hash
from steadynet.report.intervals import clopper_pearson
from steadynet.runs.trained import TrainedNetwork
from steadynet.verification.asked import Asked
from steadynet.verification.properties import Verdict
from steadynet.verification.radius_table import RadiusRow, read_radii
from steadynet.verification.region_replay import replays
from steadynet.verification.region_table import RegionRow, read_regions
from steadynet.verification.stored_verifier import as_typed, settings_as_flags, stored_verifier
from steadynet.verification.verdict_key import property_keys, region_keys
from steadynet.verification.verdicts import load_input
from steadynet.verification.verifiers import Verifier

SHARES = 8  # radii at which images are counted
A_BIT = 1e-7  # the box of a radius is rounded to float32
RADIUS = (
    "For an image x with the label y: every input x' with |x'_i - x_i| <= r and 0 <= x'_i <= 1 for each pixel i gets "
    "the label y, for each r up to the proved radius. Within the refuted radius there is an input with another label."
)


def properties_in_regions(trained: TrainedNetwork, names: Names) -> Iterator[PropertyEvidence]:
    """The properties of ``regions.csv``, one per region and claim, each checked.

    Raises:
        UserError: A verdict is of another network, image or verifier, or a counterexample does not replay.
    """
    for (asked, source), rows in _questions(trained).items():
        test = load_here(source).test
        verifier = names.remember(stored_verifier(rows[-1].verifier, rows[-1].settings, rows[-1].timeout))
        _check_rows(trained, test, asked, rows, verifier)
        sample = sample_of(source, test, [row.index for row in rows], trained.config.input.classes)
        yield property_evidence(names.property(), trained.run, None, asked, rows, sample)


def _questions(trained: TrainedNetwork) -> dict[tuple[Asked, str], list[RegionRow]]:
    """What was asked of a network, of which data, with its rows in the order of the images."""
    found: dict[tuple[Asked, str], list[RegionRow]] = {}
    for row in sorted(read_regions(trained.run.regions), key=lambda row: row.index):
        found.setdefault((row.question, row.data), []).append(row)
    return found


def _check_rows(
    trained: TrainedNetwork, test: Images, asked: Asked, rows: Sequence[RegionRow], verifier: Verifier
) -> None:
    again = f"run {shlex.join(_region_words(trained, asked, rows))} again"
    positions = _positions(trained, test, [row.index for row in rows], again)
    pixels, labels = test.pixels(positions), test.labels[positions]
    region, claim = asked.region(positions, len(test), pixels), asked.the_claim()
    keys = region_keys(trained.network, pixels, labels, region, asked.claim, verifier)
    strange = sum(row.key != key for row, key in zip(rows, keys, strict=True))
    if strange:
        raise UserError(
            f"{strange} of {len(rows)} verdicts of {trained.run.path} on {asked.described()} are of another network, "
            f"other images, other limits or another version of the verifier than are there now: {again}"
        )
    for place, row in enumerate(rows):
        if row.verdict is not Verdict.SAT:
            continue
        image, position = pixels[place : place + 1], positions[place : place + 1]
        point = load_input(trained.run.path / row.counterexample)
        own = asked.region(position, len(test), image)
        if not replays(trained.network, image, int(labels[place]), own, claim, point):
            raise UserError(f"the counterexample {trained.run.path / row.counterexample} does not replay: {again}")


def _positions(trained: TrainedNetwork, test: Images, index: Sequence[int], again: str) -> torch.Tensor:
    if max(index) >= len(test):
        path = trained.run.path
        raise UserError(f"{path} has a verdict on image {max(index)}, but there are {len(test)}: {again}")
    return torch.tensor(index)


def region_commands(trained: TrainedNetwork) -> Iterator[str]:
    """The commands that decide the regions and claims of a run again."""
    for (asked, _), rows in _questions(trained).items():
        yield shlex.join(_region_words(trained, asked, rows))


def _region_words(trained: TrainedNetwork, asked: Asked, rows: Sequence[RegionRow]) -> list[str]:
    return [*_words(trained, "verify", rows), *asked.flags()]


def _words(trained: TrainedNetwork, command: str, rows: Sequence[RegionRow] | Sequence[RadiusRow]) -> list[str]:
    """A command for the same images, time-out and verifier."""
    last, labels = rows[-1], [row.label for row in rows]
    verifier = stored_verifier(last.verifier, last.settings, last.timeout)
    words = ["steadynet", command, str(trained.run.path), "--per-class", str(max(map(labels.count, labels)))]
    words += ["--timeout", as_typed(last.timeout), "--verifier", verifier.name, *settings_as_flags(verifier)]
    source, own = (name.removeprefix(data.ALL_TESTS) for name in (last.data, trained.config.data))
    return words if source == own else [*words, "--data", source]


def radii_of(trained: TrainedNetwork, names: Names) -> Iterator[RadiusEvidence]:
    """The radii of ``radii.csv``, checked; nothing if there are none.

    Raises:
        UserError: A proof is of another network, image or verifier, or a counterexample does not replay.
    """
    rows = sorted(read_radii(trained.run), key=lambda row: row.index)
    if not rows:
        return
    last = rows[-1]
    test = load_here(last.data).test
    verifier = names.remember(stored_verifier(last.verifier, last.settings, last.timeout))
    _check_radii(trained, test, rows, verifier)
    yield RadiusEvidence(
        name=names.radius(),
        statement=RADIUS,
        most=last.most,
        tolerance=last.tolerance,
        time_limit=last.timeout,
        verifier=last.verifier,
        settings=last.settings,
        sample=sample_of(last.data, test, [row.index for row in rows], trained.config.input.classes),
        shares=tuple(_share(rows, last.most * number / SHARES) for number in range(1, SHARES + 1)),
        images=tuple(_image_radius(trained, row) for row in rows),
    )


def _check_radii(trained: TrainedNetwork, test: Images, rows: Sequence[RadiusRow], verifier: Verifier) -> None:
    again = f"run {next(radius_commands(trained))} again"
    positions = _positions(trained, test, [row.index for row in rows], again)
    pixels, labels = test.pixels(positions), test.labels[positions]
    for place, row in enumerate(rows):
        image, label = pixels[place : place + 1], labels[place : place + 1]
        if row.proved:
            (key,) = property_keys(trained.network, image, label, [row.proved], verifier).values()
            if key != row.key:
                raise UserError(
                    f"the radius of image {row.index} in {trained.run.radii} is of another network, another image or "
                    f"another version of the verifier than are there now: {again}"
                )
        if row.counterexample and not _refutes(trained, image, int(label), row):
            raise UserError(f"the counterexample {trained.run.path / row.counterexample} does not replay: {again}")


def _refutes(trained: TrainedNetwork, image: torch.Tensor, label: int, row: RadiusRow) -> bool:
    """Whether the counterexample of a row lies within the refuted radius, in [0, 1], and has another label."""
    point = load_input(trained.run.path / row.counterexample)
    distance = float((point.double() - image[0].double()).abs().max())
    if row.refuted is None or distance > row.refuted + A_BIT or not 0 <= float(point.min()) <= float(point.max()) <= 1:
        return False
    with evaluation_mode(trained.network), torch.no_grad():
        return int(trained.network(point[None].to(image)).argmax(1)) != label


def _share(rows: Sequence[RadiusRow], eps: float) -> RadiusShare:
    proved = sum(row.proved >= eps for row in rows)
    refuted = sum(row.refuted is not None and row.refuted <= eps for row in rows)
    return RadiusShare(eps, proved, refuted, len(rows) - proved - refuted, clopper_pearson(proved, len(rows)))


def _image_radius(trained: TrainedNetwork, row: RadiusRow) -> ImageRadius:
    return ImageRadius(
        image=row.index,
        label=row.label,
        proved=row.proved,
        refuted=row.refuted,
        open_at=row.open_at,
        seconds=row.seconds,
        arithmetic=row.arithmetic,
        guarantee=row.guarantee,
        counterexample=row.counterexample,
        counterexample_sha256=file_hash(trained.run.path / row.counterexample) if row.counterexample else "",
        key=row.key,
    )


def radius_commands(trained: TrainedNetwork) -> Iterator[str]:
    """The command that searches for the radii again, if they were searched for."""
    rows = read_radii(trained.run)
    if rows:
        limits = ["--max-eps", as_typed(rows[-1].most), "--tolerance", as_typed(rows[-1].tolerance)]
        yield shlex.join([*_words(trained, "radius", rows), *limits])
