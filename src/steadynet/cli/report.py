"""``steadynet report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from steadynet.cli.command import Command, add_pictures, add_runs
from steadynet.cli.parsing import Parser


def _configure(parser: Parser) -> None:
    add_runs(parser)
    parser.add_argument("--out", default="report", metavar="DIR", help="the folder to write (default: report)")
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    parser.add_argument("--no-figures", action="store_true", help="write the page and the tables only")
    add_pictures(parser)


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console
    from steadynet.report.write import write_report

    folders = [Path(run) for run in arguments.runs]
    page = write_report(folders, Path(arguments.out), figures=not arguments.no_figures, max_pictures=arguments.pictures)
    console.print(f"written: {page}", soft_wrap=True, markup=False)
    if arguments.open:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


COMMAND = Command(
    summary="write tables, figures and a web page of runs and experiments",
    description="Write a web page with tables and figures of runs and experiments, beside the paper's numbers.",
    usage="RUNS [RUNS ...] [--out DIR] [--open] [options]",
    examples=(
        "steadynet report runs/first --open     # one run, shown in the browser",
        "steadynet report runs --out overview   # every run in the folder runs",
    ),
    configure=_configure,
    run=_run,
)
