"""``steadynet status``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser
from steadynet.errors import UserError

FOLDER = Path("experiments")


def _configure(parser: Parser) -> None:
    parser.add_argument("out", nargs="*", metavar="DIR", help="experiments; all in experiments/ unless given")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.grid import show_status
    from steadynet.experiments.directory import ExperimentDirectory, experiments_below
    from steadynet.experiments.status import read_status

    found = [ExperimentDirectory(Path(path)) for path in arguments.out] or list(experiments_below(FOLDER))
    if not found:
        raise UserError(f"there are no experiments in {FOLDER}/: name a directory, or start one with reproduce")
    contents = {str(experiment.path): read_status(experiment) for experiment in found}
    if arguments.json:
        sys.stdout.write(json.dumps(contents, indent=2) + "\n")
        return
    for path, content in contents.items():
        show_status(path, content)


COMMAND = Command("how experiments are getting on: done, running, failed, time left", _configure, _run)
