"""What a report is made from: experiments, and the runs that their tables rest on."""

from __future__ import annotations

from dataclasses import dataclass

from steadynet.experiments.table import TableRow
from steadynet.experiments.variants import Variant
from steadynet.runs.directory import RunDirectory
from steadynet.runs.metrics import EpochMetrics
from steadynet.verification.verdicts import Row


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

    ``facts`` says how the numbers were measured: the names and values are shown to the reader as they are.
    """

    name: str
    title: str
    rows: list[TableRow]
    runs: list[Run]
    facts: dict[str, str]
