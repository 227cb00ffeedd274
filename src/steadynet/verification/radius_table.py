"""The file ``radii.csv`` of a run: what is known of the radius of each image."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from steadynet.files import write_text
from steadynet.verification.radius import Radius


@dataclass(frozen=True)
class RadiusRow:
    """One row: an image, and what is known of its radius.

    Attributes:
        index: The index of the test image.
        label: Its label.
        proved: The largest radius that was proved; 0 if none was.
        refuted: The smallest radius with a counterexample; None if none was found.
        open_at: The smallest radius at which the verifier ran out of time, if it did.
        seconds: The time that it took.
        most: The largest radius that was tried.
        verifier: The verifier.
        timeout: The seconds that one radius of one image could take.
        data: The data set of the image.
    """

    index: int
    label: int
    proved: float
    refuted: float | None
    open_at: float | None
    seconds: float
    most: float
    verifier: str
    timeout: float
    data: str


def rows_of(
    found: Sequence[Radius],
    index: Sequence[int],
    labels: Sequence[int],
    *,
    most: float,
    verifier: str,
    timeout: float,
    data: str,
) -> list[RadiusRow]:
    """Return the rows of some images."""
    return [
        RadiusRow(
            number, label, radius.proved, radius.refuted, radius.open_at, round(radius.seconds, 6), most, verifier,
            timeout, data,
        )
        for radius, number, label in zip(found, index, labels, strict=True)
    ]  # fmt: skip


def write_radii(path: Path, rows: Sequence[RadiusRow]) -> None:
    """Write ``radii.csv``."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [entry.name for entry in fields(RadiusRow)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value is None else value for name, value in asdict(row).items()})
    write_text(path, text.getvalue())


def certified_accuracy(found: Sequence[Radius], eps: float) -> tuple[float, float]:
    """Return the share of images that are proved at a radius, and the share that is not refuted there.

    >>> certified_accuracy([Radius(0.1, 0.2), Radius(0.0, 0.0)], 0.15)
    (0.0, 0.5)
    """
    proved = sum(radius.proved >= eps for radius in found)
    kept = sum(radius.refuted is None or radius.refuted > eps for radius in found)
    return proved / len(found), kept / len(found)
