"""``steadynet status``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from steadynet.cli.command import Command, add_json
from steadynet.cli.parsing import Parser
from steadynet.errors import UserError

FOLDER = Path("experiments")


def _configure(parser: Parser) -> None:
    parser.add_argument("out", nargs="*", metavar="DIR", help="folders of experiments (default: all in experiments/)")
    add_json(parser)


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.experiment import show_status
    from steadynet.experiments.directory import ExperimentDirectory, experiments_below
    from steadynet.experiments.status import read_status

    found = [ExperimentDirectory(Path(path)) for path in arguments.out] or list(experiments_below(FOLDER))
    if not found:
        raise UserError(f"there are no experiments in {FOLDER}/: name a folder, or start one with steadynet reproduce")
    statuses = {str(experiment.path): read_status(experiment) for experiment in found}
    if arguments.json:
        content = {path: status.to_json() for path, status in statuses.items()}
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
        return
    for path, status in statuses.items():
        show_status(path, status)


COMMAND = Command(
    summary="show the progress of experiments",
    description="Show how far experiments are: what is done, running and failed, and the time left.",
    usage="[DIR ...] [--json]",
    examples=(
        "steadynet status                                  # every experiment in experiments/",
        "steadynet status experiments/rq1-mnist-laptop",
    ),
    configure=_configure,
    run=_run,
)
