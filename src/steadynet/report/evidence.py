"""The evidence file for an assessor, ``evidence.json``: what was asked of networks, what was found, and of what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from steadynet.experiments.provenance import Provenance
from steadynet.files import read_record, write_record
from steadynet.report.intervals import Interval
from steadynet.verification.self_test.record import SelfTestRecord

FORMAT = 3  # raised when a field changes its meaning
NOT_STATED = "not stated"


@dataclass(frozen=True)
class HashedFile:
    """A file and the SHA-256 hash of its bytes, as ``sha256sum`` prints it."""

    role: str
    path: str
    sha256: str


@dataclass(frozen=True)
class Sample:
    """The test images that were verified at one radius.

    Attributes:
        data: The data set: its name, or the path of its file.
        test_images: How many images the test set has.
        positions: The positions of the verified images in the test set, from 0, in rising order.
        per_class: How many images of each class were verified, by label.
        first_of_each_class: N, if they are the first N of each class in the order of the test set; None if they were
            chosen in another way, which is not known.
        sha256: The hash of these images and labels: all pixels as float32 (little-endian) in the order of the
            positions, then the labels as int64 (little-endian).
    """

    data: str
    test_images: int
    positions: tuple[int, ...]
    per_class: Mapping[str, int]
    first_of_each_class: int | None
    sha256: str


@dataclass(frozen=True)
class GuaranteeEvidence:
    """How many verdicts rest on the same arithmetic and guarantee, and what that means."""

    verdict: str
    arithmetic: str
    guarantee: str
    meaning: str
    count: int


@dataclass(frozen=True)
class DecidedProperty:
    """The verdict on one image, as ``verdicts.csv`` or ``regions.csv`` holds it.

    ``proof`` says whether the proof file with the hash ``proof_sha256`` was checked; both are empty if there is none.
    """

    image: int
    label: int
    verdict: str
    seconds: float
    time_limit: float
    decided_by: str
    reason: str
    arithmetic: str
    guarantee: str
    counterexample: str
    counterexample_sha256: str
    key: str
    proof: str = ""
    proof_sha256: str = ""


@dataclass(frozen=True)
class PropertyEvidence:
    """A property of one network in one kind of region, and the verdicts on it.

    Attributes:
        name: A short name, such as ``P1``.
        eps: The radius; None if the region is no ε-box.
        region: The region of an image, in words, with its parameters.
        claim: What is claimed, in words.
        statement: The property in words.
        sample: The images that it was decided for.
        proved: How many images it is proved for.
        refuted: How many images it is refuted for, by a counterexample.
        misclassified: How many of the refuted images have the wrong label themselves.
        undecided: How many images it is neither proved nor refuted for.
        undecided_because: How many of these ended as ``timeout``, ``unknown`` and ``error``.
        time_limits: The time limits for one image in seconds.
        proved_share: A confidence interval for the share that can be proved within the time limit.
        guarantees: What the proofs and the counterexamples rest on.
        verdicts: The verdict on each image.
        verifier: The verifier that decided.
        settings: Its settings, as ``verdicts.csv`` writes them.
        checked_proofs: How many of the proved images have a proof file that ``steadycheck`` has just accepted.
        other_proofs: How many more have a proof file that does not count: refused, stale or not checked.
    """

    name: str
    eps: float | None
    region: str
    claim: str
    statement: str
    sample: Sample
    proved: int
    refuted: int
    misclassified: int
    undecided: int
    undecided_because: Mapping[str, int]
    time_limits: tuple[float, ...]
    proved_share: Interval
    guarantees: tuple[GuaranteeEvidence, ...]
    verdicts: tuple[DecidedProperty, ...]
    verifier: str
    settings: str
    checked_proofs: int = 0
    other_proofs: int = 0

    @property
    def images(self) -> int:
        """How many images it was decided for."""
        return self.proved + self.refuted + self.undecided


@dataclass(frozen=True)
class ImageRadius:
    """What is known of the radius of one image, as ``radii.csv`` holds it. ``key`` is that of the proof."""

    image: int
    label: int
    proved: float
    refuted: float | None
    open_at: float | None
    seconds: float
    arithmetic: str
    guarantee: str
    counterexample: str
    counterexample_sha256: str
    key: str


@dataclass(frozen=True)
class RadiusShare:
    """How many images are proved, refuted and open at one radius, with a confidence interval for the proved share."""

    eps: float
    proved: int
    refuted: int
    open: int
    proved_share: Interval


@dataclass(frozen=True)
class RadiusEvidence:
    """The largest proved and the smallest refuted radius of each image.

    Attributes:
        name: A short name, such as ``R1``.
        statement: What a radius means, in words.
        most: The largest radius that was tried.
        tolerance: The width at which the search between the proved and the refuted radius ended.
        time_limit: The seconds that one radius of one image could take.
        verifier: The verifier.
        settings: Its settings.
        sample: The images.
        shares: Counts at some radii, chosen before anything is known: eighths of ``most``.
        images: One entry per image.
    """

    name: str
    statement: str
    most: float
    tolerance: float
    time_limit: float
    verifier: str
    settings: str
    sample: Sample
    shares: tuple[RadiusShare, ...]
    images: tuple[ImageRadius, ...]


@dataclass(frozen=True)
class NetworkEvidence:
    """One network: its files, the verifier that decided its properties, and the verdicts.

    Attributes:
        name: Its name in the report.
        model: The architecture, or the file that it was imported from.
        method: How it was trained; ``imported`` if elsewhere.
        held_out: Whether it is known that the network was not trained on the verified images.
        trained_for: The radius that it was trained for; 0 if it was not trained here.
        weights_sha256: The hash of the values of its weights (:func:`~steadynet.report.hashes.weights_hash`). A
            repeated training gives the same one, though its file may order its header in another way.
        files: The hashes of its files.
        properties: One entry per radius, and per other region or claim.
        radii: The radii of images, if they were searched for.
        other_rows: Rows of ``verdicts.csv`` by other verifiers, settings or data, which are not part of this.
        commands: The commands that repeat the work.
    """

    name: str
    model: str
    method: str
    held_out: bool
    trained_for: float
    weights_sha256: str
    files: tuple[HashedFile, ...]
    properties: tuple[PropertyEvidence, ...]
    radii: tuple[RadiusEvidence, ...]
    other_rows: int
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """The content of ``evidence.json``.

    Attributes:
        requirement: The requirement that the properties stand for, in the user's words.
        eps_reason: Why these radii, in the user's words.
        tool: The version of steadynet, and the machine that wrote this.
        tool_sha256: The hash of the tool's source files, which have no other hash in common with another version.
        soundness_version: The version of everything that can change a verdict. It is part of each verdict's key.
        networks: The networks.
        self_tests: How the verifiers were checked.
        without_verdicts: The runs that were given but have neither verdicts nor radii.
        format: The version of this format.
    """

    requirement: str
    eps_reason: str
    tool: Provenance
    tool_sha256: str
    soundness_version: int
    networks: tuple[NetworkEvidence, ...]
    self_tests: tuple[SelfTestRecord, ...]
    without_verdicts: tuple[str, ...] = ()
    format: int = FORMAT


def write_evidence(path: Path, evidence: Evidence) -> None:
    """Write ``evidence.json``."""
    write_record(path, evidence)


def read_evidence(path: Path) -> Evidence:
    """Read ``evidence.json``.

    Raises:
        UserError: The file is damaged.
    """
    return read_record(path, Evidence)
