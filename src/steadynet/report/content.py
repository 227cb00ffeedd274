"""The content of a report: tables, figures and claims, made from the folders of runs and experiments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steadynet.experiments.provenance import provenance
from steadynet.report.charts import Chart
from steadynet.report.claims import Claim
from steadynet.report.collect import collect
from steadynet.report.layers import layer_shares
from steadynet.report.layout import Table, tables_of
from steadynet.report.paper_claims import CLAIMS, claims_of
from steadynet.report.records import Experiment
from steadynet.report.run_charts import run_charts
from steadynet.report.table_charts import table_charts

TITLE = "steadynet report"


@dataclass(frozen=True, eq=False)
class Section:
    """One experiment with its tables and figures. ``notes`` say what is missing, and why."""

    experiment: Experiment
    tables: list[Table]
    charts: list[Chart]
    notes: list[str]


@dataclass(frozen=True, eq=False)
class Report:
    """Everything that a report shows. ``written`` says when and by which version it was made."""

    sections: list[Section]
    claims: list[Claim]
    written: str

    @property
    def unchecked(self) -> list[str]:
        """The names of the paper's claims that no table of this report has data on."""
        return [name for name in CLAIMS if all(claim.name != name for claim in self.claims)]


def make_report(folders: Sequence[Path]) -> Report:
    """Read run directories and experiments, and make the content of their report.

    Args:
        folders: Run directories, experiments, or folders that hold some.

    Returns:
        The content of the report.

    Raises:
        UserError: If a folder holds no runs, or if a file is damaged.
    """
    sections = []
    for experiment in collect(folders):
        tables = tables_of(experiment)
        layers, notes = layer_shares(experiment.runs)
        charts = [chart for table in tables for chart in table_charts(table)] + run_charts(experiment, layers)
        sections.append(Section(experiment, tables, charts, notes))
    claims = claims_of(table for section in sections for table in section.tables)
    return Report(sections, claims, _written())


def _written() -> str:
    facts = provenance()
    commit = f" (commit {facts.commit[:12]})" if facts.commit else ""
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"Written {now} by steadynet {facts.steadynet}{commit} on {facts.hardware}."
