"""Write a report: tables, figures, a Markdown summary and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steadynet.files import write_text
from steadynet.report.claims import RULE, Claim
from steadynet.report.content import TITLE, Report, make_report
from steadynet.report.figures import file_name, write_figures
from steadynet.report.gallery import MAX_PICTURES
from steadynet.report.layout import Table
from steadynet.report.page import page_of
from steadynet.report.tables import as_csv, as_latex, as_markdown, markdown_text


def write_report(folders: Sequence[Path], out: Path, *, figures: bool = True, max_pictures: int = MAX_PICTURES) -> Path:
    """Write the report of runs and experiments into a folder.

    The folder then holds ``index.html`` (the page), ``report.md`` (a summary), ``tables/`` (each table as Markdown,
    LaTeX and CSV) and ``figures/`` (each figure as PNG and SVG).

    Args:
        folders: Run directories, experiments, or folders that hold some.
        out: The folder to write into. It is made if it does not exist, and files of an earlier report are replaced.
        figures: Whether to write ``figures/``. The page has its own figures in any case.
        max_pictures: How many counterexamples the page draws at most.

    Returns:
        The path of the page.

    Raises:
        UserError: If a folder holds no runs, if a file is damaged or cannot be written, or if the extra
            ``steadynet[report]`` is not installed.

    >>> from tempfile import TemporaryDirectory
    >>> from steadynet import resolve, train
    >>> settings = resolve({"data": "digits", "model": "M1", "method": "natural", "epochs": 1, "train_images": 64})
    >>> with TemporaryDirectory() as folder:
    ...     run = train(settings, Path(folder) / "run")
    ...     page = write_report([Path(folder) / "run"], Path(folder) / "report", figures=False)
    ...     sorted(path.name for path in page.parent.iterdir())
    ['index.html', 'report.md', 'tables']
    """
    report = make_report(folders)
    for section in report.sections:
        for table in section.tables:
            _write_table(table, out / "tables")
        if figures:
            write_figures(section.charts, out / "figures")
    write_text(out / "report.md", report_as_markdown(report, figures))
    write_text(out / "index.html", page_of(report, max_pictures))
    return out / "index.html"


def _write_table(table: Table, folder: Path) -> None:
    name = file_name(table.name)
    write_text(folder / f"{name}.md", as_markdown(table))
    write_text(folder / f"{name}.tex", as_latex([table]))
    write_text(folder / f"{name}.csv", as_csv(table))


def report_as_markdown(report: Report, figures: bool) -> str:
    """The summary: all tables, links to the figures if there are any, and the claims that a grid speaks of."""
    parts = [f"# {TITLE}", markdown_text(report.written)]
    for section in report.sections:
        parts.append(f"**{markdown_text(section.headline.text)}.** {markdown_text(section.headline.meaning)}")
        parts += [as_markdown(table).strip() for table in section.tables]
        if figures:
            parts += [f"![{markdown_text(c.title)}](figures/{file_name(c.name)}.png)" for c in section.charts]
        if section.claims:
            parts.append(_claims_as_markdown(section.claims))
    return "\n\n".join(parts) + "\n"


def _claims_as_markdown(claims: Sequence[Claim]) -> str:
    lines = ["## The paper's claims", "", RULE, ""]
    lines += ["| claim | table | outcome | outcome on the paper's own numbers | reason |", "|---|---|---|---|---|"]
    for claim in claims:
        reason = "; ".join(f"{part.metric.label}: {part.outcome.value}, {part.reason}" for part in claim.parts)
        cells = [f"{claim.name}: {claim.text}", claim.table, claim.outcome.value, claim.paper_outcome.value, reason]
        lines.append(f"| {' | '.join(map(markdown_text, cells))} |")
    return "\n".join(lines)
