"""The curve of certified accuracy against ε, from the radii of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steadynet.report.charts import GREEN, GREY, Chart, Kind, Panel, Series, Style
from steadynet.report.figures import write_figures
from steadynet.verification.radius import Radius
from steadynet.verification.radius_table import Known, certified_accuracy

POINTS = 200


def radius_panel(found: Sequence[Known], most: float, title: str) -> Panel:
    """Draw the share of images that are proved, and that are not refuted, at each radius up to the largest."""
    radii = [most * number / POINTS for number in range(POINTS + 1)]
    shares = [certified_accuracy(found, eps) for eps in radii]
    series = [
        Series("not refuted", radii, [100 * kept for _, kept in shares], Style(GREY, "", "", dashed=True)),
        Series("proved", radii, [100 * proved for proved, _ in shares], Style(GREEN, "", "")),
    ]
    return Panel(title, "radius ε", "images (%)", Kind.STEPS, series, percent=True)


def write_radius_curve(found: Sequence[Radius], most: float, folder: Path) -> list[Path]:
    """Draw certified accuracy against ε.

    Returns:
        The files, ``radius.png`` and ``radius.svg``.

    Raises:
        UserError: matplotlib is not installed, or a file cannot be written.
    """
    panel = radius_panel(found, most, "Certified accuracy lies between the two lines")
    return write_figures([Chart("radius", "How robust it is", f"{len(found)} images", [panel])], folder)
