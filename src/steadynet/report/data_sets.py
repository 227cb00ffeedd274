"""The data sets that are on this machine. A report downloads nothing."""

from __future__ import annotations

from pathlib import Path

from steadynet import data
from steadynet.data import Dataset
from steadynet.errors import UserError


def is_here(source: str) -> bool:
    """Whether a data set, given by name or by file, can be read without a download."""
    known = data.available()
    return known[source]().is_available() if source in known else data.own_path(source).exists()


def load_here(source: str) -> Dataset:
    """Load a data set that is on this machine.

    Raises:
        UserError: If it is not on this machine, or cannot be read.
    """
    if not is_here(source):
        raise UserError(f"the data set {Path(source).name} is not on this machine")
    return data.load(source)
