"""The content of a report: tables, figures and claims, made from the folders of runs and experiments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steadynet.experiments.provenance import provenance
from steadynet.report.charts import Chart
from steadynet.report.claims import Claim, undecided
from steadynet.report.collect import collect
from steadynet.report.headline import Headline, headline_of
from steadynet.report.layers import layer_shares
from steadynet.report.layout import Table, tables_of
from steadynet.report.paper_claims import claims_of
from steadynet.report.records import Experiment
from steadynet.report.run_charts import run_charts
from steadynet.report.table_charts import table_charts
from steadynet.report.verdict_chart import verdict_chart

TITLE = "steadynet report"


@dataclass(frozen=True, eq=False)
class Section:
    """One experiment with its tables and figures, and the paper's claims that it speaks of.

    ``notes`` say what is missing, and why.
    """

    experiment: Experiment
    tables: list[Table]
    verdict_chart: Chart | None
    more_charts: list[Chart]
    notes: list[str]
    claims: list[Claim]

    @property
    def charts(self) -> list[Chart]:
        """All figures, the one of proved, undecided and refuted properties first."""
        return [self.verdict_chart, *self.more_charts] if self.verdict_chart else self.more_charts

    @property
    def headline(self) -> Headline:
        """What the experiment found, in one sentence."""
        return headline_of(self.experiment)


@dataclass(frozen=True, eq=False)
class Report:
    """Everything that a report shows. ``written`` says when and by which version it was made."""

    sections: list[Section]
    written: str

    @property
    def main_section(self) -> Section:
        """The section that the page's headline and examples are about: the first with verdicts that mean something."""
        verified = [section for section in self.sections if any(run.verdicts for run in section.experiment.runs)]
        telling = [section for section in verified if not section.experiment.is_smoke]
        return (telling or verified or self.sections)[0]


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
        claims = claims_of(tables) if experiment.is_grid else []
        if experiment.is_smoke:
            claims = [undecided(claim, "numbers at smoke scale mean nothing") for claim in claims]
        sections.append(Section(experiment, tables, verdict_chart(experiment), charts, notes, claims))
    return Report(sections, _written())


def _written() -> str:
    facts = provenance()
    commit = f" (commit {facts.commit[:12]})" if facts.commit else ""
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"Written {now} by steadynet {facts.steadynet}{commit} on {facts.hardware}."
