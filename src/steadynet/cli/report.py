"""``steadynet report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from steadynet.cli.command import Command, count
from steadynet.cli.parsing import Parser


def _configure(parser: Parser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="run directories, experiments, or folders of them")
    parser.add_argument("--out", default="report", metavar="DIR", help="where it is written [report]")
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    parser.add_argument("--no-figures", action="store_true", help="the page and the tables only")
    parser.add_argument(
        "--pictures", type=count, default=5000, metavar="N", help="counterexamples drawn at most [5000]"
    )


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console
    from steadynet.report.write import write_report

    folders = [Path(run) for run in arguments.runs]
    page = write_report(folders, Path(arguments.out), figures=not arguments.no_figures, max_pictures=arguments.pictures)
    console.print(f"written: {page}", soft_wrap=True, markup=False)
    if arguments.open:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


COMMAND = Command("tables, figures and a page of runs and experiments, beside the paper's numbers", _configure, _run)
