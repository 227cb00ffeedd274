"""What the pages of ``evidence.pdf`` say of radii."""

from __future__ import annotations

import math
from collections.abc import Iterator

from steadynet.report.evidence import ImageRadius, RadiusEvidence
from steadynet.report.intervals import Interval
from steadynet.report.pdf import NOTE, SUBHEADING, Block, Table, Text
from steadynet.verification.stored_verifier import as_typed


def interval_in_percent(interval: Interval) -> str:
    """The interval in per cent, rounded outwards to one decimal."""
    low, high = math.floor(interval.low * 1000) / 10, math.ceil(interval.high * 1000) / 10
    return f"{low:.1f} to {high:.1f} %"


def radius_blocks(found: RadiusEvidence) -> Iterator[Block]:
    """What is said of the radii of images: counts at some radii with their intervals, then image by image."""
    yield Text(f"{found.name}: how far each image keeps its label", SUBHEADING, with_next=True)
    count = len(found.images)
    rows = tuple(
        (f"{share.eps:.4g}", f"{share.proved} of {count}", str(share.refuted), str(share.open),
         interval_in_percent(share.proved_share))
        for share in found.shares
    )  # fmt: skip
    header = ("radius", "proved", "refuted", "open", "proved share, 95\N{NO-BREAK SPACE}% interval")
    yield Table(header, rows, (0.16, 0.20, 0.16, 0.16, 0.32))
    header = ("image", "label", "proved up to", "refuted from", "open")
    yield Table(header, tuple(_row(image, found.most) for image in found.images), (0.12, 0.12, 0.22, 0.22, 0.32))
    limit = f"{as_typed(found.time_limit)} s for each radius of an image"
    yield Text(f"Decided by {found.verifier} with {found.settings or 'no settings'}; {limit}.", NOTE)


def _row(image: ImageRadius, most: float) -> tuple[str, ...]:
    """Numbers are rounded so that they stay true: proved radii down, refuted ones up."""
    proved = f"{math.floor(image.proved * 1e5) / 1e5:.5f}" if image.proved else "nothing proved"
    refuted = "not refuted" if image.refuted is None else f"{math.ceil(image.refuted * 1e5) / 1e5:.5f}"
    upper = most if image.refuted is None else image.refuted
    gap = upper - image.proved
    why = "" if image.open_at is None else f" (time limit at {image.open_at:.5f})"
    return str(image.image), str(image.label), proved, refuted, f"{gap:.5f} wide{why}" if gap > 0 else "none"
