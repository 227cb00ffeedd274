"""``steadynet report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from steadynet.cli.command import Command, add_pictures, add_runs
from steadynet.cli.parsing import Parser
from steadynet.errors import UserError


def _configure(parser: Parser) -> None:
    add_runs(parser)
    parser.add_argument("--out", default="report", metavar="DIR", help="the folder to write (default: report)")
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    parser.add_argument("--no-figures", action="store_true", help="write the page and the tables only")
    add_pictures(parser)
    group = parser.add_argument_group("evidence for an assessor")
    group.add_argument(
        "--evidence",
        action="store_true",
        help="also write evidence.pdf and evidence.json: what was verified, with hashes, verdicts and their guarantees",
    )
    group.add_argument("--requirement", metavar="TEXT", help="the requirement that the properties stand for")
    group.add_argument("--eps-reason", metavar="TEXT", help="why the radii are as they are")
    group.add_argument(
        "--self-test",
        nargs="+",
        metavar="FILE",
        help="results that steadynet self-test --record wrote (default: a short self-test is run now)",
    )


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console
    from steadynet.report.write import write_report

    folders = [Path(run) for run in arguments.runs]
    _check_flags(arguments)
    page = write_report(folders, Path(arguments.out), figures=not arguments.no_figures, max_pictures=arguments.pictures)
    console.print(f"written: {page}", soft_wrap=True, markup=False)
    if arguments.evidence:
        for path in _write_evidence(arguments, folders):
            console.print(f"written: {path}", soft_wrap=True, markup=False)
    elif (evidence := Path(arguments.out) / "evidence.pdf").is_file():
        console.print(f"{evidence} is of an earlier report: --evidence writes it anew", soft_wrap=True, markup=False)
    if arguments.open:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def _check_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags that say something of the evidence if there is to be none, and texts without a word."""
    for name in ("requirement", "eps_reason", "self_test"):
        flag, given = f"--{name.replace('_', '-')}", getattr(arguments, name)
        if given is not None and not arguments.evidence:
            raise UserError(f"{flag} belongs to --evidence: give both, or leave it out")
        if isinstance(given, str) and not given.strip():
            raise UserError(f"{flag} is empty: write a sentence, or leave it out")


def _write_evidence(arguments: argparse.Namespace, folders: list[Path]) -> tuple[Path, Path]:
    from steadynet.report.evidence import NOT_STATED
    from steadynet.report.write_evidence import write_evidence_files

    return write_evidence_files(
        folders,
        Path(arguments.out),
        arguments.requirement or NOT_STATED,
        arguments.eps_reason or NOT_STATED,
        [Path(file) for file in arguments.self_test or ()],
    )


COMMAND = Command(
    summary="write tables, figures and a web page of runs and experiments",
    description="Write a web page with tables and figures of runs and experiments, beside the paper's numbers.",
    usage="RUNS [RUNS ...] [--out DIR] [--open] [options]",
    examples=(
        "steadynet report runs/first --open     # one run, shown in the browser",
        "steadynet report runs --out overview   # every run in the folder runs",
        "steadynet report runs/first --evidence # also evidence.pdf and evidence.json, for an assessor",
    ),
    configure=_configure,
    run=_run,
)
