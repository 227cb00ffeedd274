"""The file ``radii.csv`` of a run: what is known of the radius of each image."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from steadynet.errors import UserError
from steadynet.files import disk_errors, write_text
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import save_tensors
from steadynet.verification.radius import Radius, RadiusSearch
from steadynet.verification.verdict_key import keys_of_hash, network_hash


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
        tolerance: The width of a bracket that is narrow enough.
        verifier: The verifier.
        settings: Its settings, as ``verdicts.csv`` writes them.
        timeout: The seconds that one radius of one image could take.
        arithmetic: Which arithmetic the proof speaks of.
        guarantee: What the proof rests on.
        counterexample: The file of the counterexample, in the run directory.
        data: The data set of the image.
        key: The key of the property at ``proved``, as that of a verdict.
    """

    index: int
    label: int
    proved: float
    refuted: float | None
    open_at: float | None
    seconds: float
    most: float
    tolerance: float
    verifier: str
    settings: str
    timeout: float
    arithmetic: str
    guarantee: str
    counterexample: str
    data: str
    key: str


OPTIONAL = ("refuted", "open_at")
NUMBERS = ("proved", "seconds", "most", "tolerance", "timeout")


def write_radii(run: RunDirectory, rows: Sequence[RadiusRow], found: Sequence[Radius]) -> None:
    """Write ``radii.csv``, after the counterexamples of its rows."""
    for row, radius in zip(rows, found, strict=True):
        if row.counterexample and radius.counterexample is not None:
            with disk_errors(run.path):
                run.counterexamples.mkdir(exist_ok=True)
            facts = {"eps": row.refuted, "index": row.index, "label": row.label}
            save_tensors(run.path / row.counterexample, {"input": radius.counterexample}, facts)
    text = io.StringIO()
    writer = csv.DictWriter(text, [entry.name for entry in fields(RadiusRow)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value is None else value for name, value in asdict(row).items()})
    write_text(run.radii, text.getvalue())


def read_radii(run: RunDirectory) -> list[RadiusRow]:
    """Read ``radii.csv``; no row if there is no such file, or if an older version wrote it.

    Raises:
        UserError: The file is damaged.
    """
    if not run.radii.is_file():
        return []
    with run.radii.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    names = [entry.name for entry in fields(RadiusRow)]
    if not lines or lines[0] != names:
        return []
    try:
        return [RadiusRow(**dict(zip(names, map(_value, names, line), strict=True))) for line in lines[1:]]
    except (TypeError, ValueError) as error:
        raise UserError(f"{run.radii} is damaged: run steadynet radius again") from error


def _value(name: str, cell: str) -> Any:
    if name in OPTIONAL:
        return float(cell) if cell else None
    if name in ("index", "label"):
        return int(cell)
    return float(cell) if name in NUMBERS else cell


def rows_of(search: RadiusSearch, index: Sequence[int], data: str) -> list[RadiusRow]:
    """Return the rows of the images of a search; ``index`` are their positions in the test set."""
    verifier, keys, rows = search.verifier, _keys(search), []
    for place, (number, radius) in enumerate(zip(index, search.found, strict=True)):
        point = "" if radius.counterexample is None else f"counterexamples/radius-image-{number}.safetensors"
        rows.append(
            RadiusRow(
                index=number,
                label=int(search.properties.labels[place]),
                proved=radius.proved,
                refuted=radius.refuted,
                open_at=radius.open_at,
                seconds=round(radius.seconds, 6),
                most=search.most,
                tolerance=search.tolerance,
                verifier=verifier.name,
                settings=verifier.settings_line(),
                timeout=verifier.timeout,
                arithmetic=str(radius.arithmetic or ""),
                guarantee=str(radius.guarantee or ""),
                counterexample=point,
                data=data,
                key=keys[place],
            )
        )
    return rows


def _keys(search: RadiusSearch) -> list[str]:
    """The key of each image at the radius that was proved; empty if none was."""
    properties, result = search.properties, []
    hashed = network_hash(properties.network, tuple(properties.images.shape[1:]))
    for place, radius in enumerate(search.found):
        image, label = properties.images[place : place + 1], properties.labels[place : place + 1]
        keys = keys_of_hash(hashed, image, label, [radius.proved] if radius.proved else [], search.verifier)
        result.append(keys.get((radius.proved, 0), ""))
    return result


class Known(Protocol):
    """What is known of the radius of one image."""

    @property
    def proved(self) -> float: ...  # noqa: D102
    @property
    def refuted(self) -> float | None: ...  # noqa: D102


def certified_accuracy(found: Sequence[Known], eps: float) -> tuple[float, float]:
    """Return the share of images that are proved at a radius, and the share that is not refuted there.

    >>> certified_accuracy([Radius(0.1, 0.2), Radius(0.0, 0.0)], 0.15)
    (0.0, 0.5)
    """
    proved = sum(radius.proved >= eps for radius in found)
    kept = sum(radius.refuted is None or radius.refuted > eps for radius in found)
    return proved / len(found), kept / len(found)
