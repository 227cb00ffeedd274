"""The numbers of the paper's tables, to be set beside ours."""

from __future__ import annotations

import csv
import io
from functools import lru_cache
from importlib import resources

from steadynet.settings import parse_radius

PAPER = resources.files("steadynet.experiments") / "paper"
Place = tuple[str, str, float | None, str]  # model, method, radius, metric


@lru_cache
def paper_numbers(experiment: str) -> dict[Place, float]:
    """The numbers of one experiment; none for a grid that the paper does not have.

    >>> paper_numbers("rq1-mnist")["M1", "nbc", 0.1, "stable_percent"]
    84.7
    """
    path = PAPER / f"{experiment}.csv"
    if not path.is_file():
        return {}
    rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
    return {
        (row["model"], row["method"], parse_radius(row["eps"]) if row["eps"] else None, row["metric"]): float(
            row["value"]
        )
        for row in rows
    }
