"""What a report is made from: experiments, and the runs that their tables rest on."""

from __future__ import annotations

from dataclasses import dataclass

from steadynet.experiments.table import TableRow
from steadynet.experiments.variants import Variant
from steadynet.runs.directory import RunDirectory
from steadynet.runs.metrics import EpochMetrics
from steadynet.verification.verdicts import Row

SMOKE = "smoke"  # the scale whose numbers mean nothing


@dataclass(frozen=True, eq=False)
class Run:
    """One trained network: its run directory, what it is called, how it trained, and its verdicts.

    ``name`` is unique within an experiment.
    """

    folder: RunDirectory
    name: str
    dataset: str
    model: str
    variant: Variant
    seed: int
    epochs: list[EpochMetrics]
    verdicts: list[Row]

    @property
    def label(self) -> str:
        """The name of its method in tables and figures."""
        return self.variant.label


@dataclass(frozen=True, eq=False)
class Experiment:
    """The rows of one table, and the runs that they rest on.

    ``facts`` says how the numbers were measured: the names and values are shown to the reader as they are. ``scale`` is
    the scale of a grid, and empty for runs that belong to no grid.
    """

    name: str
    title: str
    rows: list[TableRow]
    runs: list[Run]
    facts: dict[str, str]
    scale: str = ""

    @property
    def is_grid(self) -> bool:
        """Whether a grid planned these runs. Only a grid can speak of the paper's claims."""
        return bool(self.scale)

    @property
    def is_smoke(self) -> bool:
        """Whether its numbers mean nothing, because it ran only to see that every step works."""
        return self.scale == SMOKE
