"""The whole report: read the folders, judge the claims, write tables, figures and the page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadynet.experiments.provenance import provenance
from steadynet.files import write_text
from steadynet.report.charts import Chart
from steadynet.report.claims import RULE, Claim, Outcome
from steadynet.report.collect import Experiment, collect
from steadynet.report.figures import file_name, write_figures
from steadynet.report.gallery import MOST_PICTURES, gallery_of
from steadynet.report.interactive import as_data
from steadynet.report.layers import layer_shares
from steadynet.report.layout import Table, tables_of
from steadynet.report.metrics import radius
from steadynet.report.page import claims_data, experiment_data, page
from steadynet.report.paper_claims import CLAIMS, claims_of
from steadynet.report.run_charts import run_charts
from steadynet.report.table_charts import table_charts
from steadynet.report.tables import as_csv, as_latex, as_markdown, markdown_text


@dataclass(frozen=True, eq=False)
class Section:
    """One experiment with what is made of it."""

    experiment: Experiment
    tables: list[Table]
    charts: list[Chart]
    notes: list[str]


@dataclass(frozen=True, eq=False)
class Report:
    """Everything a report shows."""

    sections: list[Section]
    claims: list[Claim]
    written: str

    @property
    def unclaimed(self) -> list[str]:
        """The claims of the paper that no table here has a word on."""
        return [name for name in CLAIMS if all(claim.name != name for claim in self.claims)]


def make_report(folders: Sequence[Path]) -> Report:
    """The report of these runs and experiments."""
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
    hardware = ", ".join(str(part) for part in (facts.get("cpu"), f"{facts['cores']} cores", *facts["gpus"]) if part)
    commit = f" (commit {facts['commit'][:12]})" if "commit" in facts else ""
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"Written {now} by steadynet {facts['steadynet']}{commit} on {hardware}."


def page_of(report: Report, most_pictures: int = MOST_PICTURES, live: str | None = None) -> str:
    """The page; ``live`` names the version that a server would tell it is outdated."""
    gallery = gallery_of([section.experiment for section in report.sections], most_pictures)
    title = "steadynet report"
    content: dict[str, Any] = {
        "title": title,
        "written": report.written,
        "rule": RULE,
        "outcomes": {outcome.name: outcome.value for outcome in Outcome},
        "claims": claims_data(report.claims),
        "unclaimed": report.unclaimed,
        "radii": {_as_key(eps): radius(eps) for eps in sorted(set(gallery.columns["eps"]))},
        "experiments": [
            experiment_data(
                section.experiment.name,
                section.experiment.title,
                section.tables,
                as_data(section.charts),
                section.notes,
                gallery,
            )
            for section in report.sections
        ],
        "gallery": gallery.as_data(),
        "live": live,
    }
    return page(content, title)


def _as_key(eps: float) -> str:
    """A number as JavaScript makes it a string, for those that radii are."""
    return repr(eps).removesuffix(".0")


def write_report(
    folders: Sequence[Path], out: Path, *, figures: bool = True, most_pictures: int = MOST_PICTURES
) -> Path:
    """Everything into ``out``; the path of the page."""
    report = make_report(folders)
    parts = ["# steadynet report", markdown_text(report.written)]
    for section in report.sections:
        for table in section.tables:
            name = file_name(table.name)
            write_text(out / "tables" / f"{name}.md", as_markdown(table))
            write_text(out / "tables" / f"{name}.tex", as_latex([table]))
            write_text(out / "tables" / f"{name}.csv", as_csv(table))
            parts.append(as_markdown(table).strip())
        if figures:
            write_figures(section.charts, out / "figures")
            parts += [f"![{markdown_text(c.title)}](figures/{file_name(c.name)}.png)" for c in section.charts]
    parts.append(claims_as_markdown(report))
    write_text(out / "report.md", "\n\n".join(parts) + "\n")
    write_text(out / "index.html", page_of(report, most_pictures))
    return out / "index.html"


def claims_as_markdown(report: Report) -> str:
    """The outcomes of the paper's claims, with what each rests on."""
    lines = ["## The paper's claims", "", RULE, ""]
    lines += ["| claim | table | outcome | the rule on the paper's own numbers | because |", "|---|---|---|---|---|"]
    for claim in report.claims:
        because = "; ".join(f"{part.metric.label}: {part.outcome.value}, {part.reason}" for part in claim.parts)
        cells = [f"{claim.name}: {claim.text}", claim.table, claim.outcome.value, claim.paper_outcome.value, because]
        lines.append(f"| {' | '.join(map(markdown_text, cells))} |")
    lines += [
        f"| {name} | – | {Outcome.NOT_ENOUGH_DATA.value} | – | no table here has anything to say on it |"
        for name in report.unclaimed
    ]
    return "\n".join(lines)
