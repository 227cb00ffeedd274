"""``steadynet publish``."""

from __future__ import annotations

import argparse
from pathlib import Path

from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser
from steadynet.errors import UserError

RESULTS = "results"


def _configure(parser: Parser) -> None:
    parser.add_argument("experiments", nargs="+", metavar="DIR", help="folders that steadynet reproduce wrote")
    parser.add_argument("--to", metavar="DIR", help=f"the folder of all published grids (default: {RESULTS})")
    parser.add_argument(
        "--best-of",
        nargs="+",
        default=[],
        metavar="MODEL",
        help="publish the weights of the network with the most proofs of these models, such as M3",
    )


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console
    from steadynet.experiments.directory import ExperimentDirectory
    from steadynet.experiments.publishing import LIMIT, publish, published_size
    from steadynet.files import read_toml

    results = Path(arguments.to or RESULTS)
    for folder in map(ExperimentDirectory, map(Path, arguments.experiments)):
        scale = read_toml(folder.grid).get("made", {}).get("scale") if folder.is_experiment() else None
        if scale == "smoke" and not arguments.to:
            raise UserError(f"{folder.path} has the scale smoke, whose numbers mean nothing: not published")
        done = publish(folder, results, arguments.best_of)
        removed = f", {len(done.removed)} removed that the grid no longer has" if done.removed else ""
        console.print(
            f"{done.folder}: {len(done.there)} of {done.planned} cells, {len(done.new)} of them new{removed}",
            soft_wrap=True,
        )
        if done.without_room:
            console.print(f"without weights, as there is no room: {', '.join(done.without_room)}", soft_wrap=True)
    console.print(f"{results}: {published_size(results) / 1e6:.1f} of {LIMIT / 1e6:.0f} MB", soft_wrap=True)


COMMAND = Command(
    summary="publish the finished cells of an experiment",
    description=(
        "Copy the finished cells of an experiment into a folder that can be committed: configurations, metrics, "
        "evaluations and verdicts, and the weights of small networks. Cells that are not finished, or where a stage "
        "failed, are left out. Publishing again adds what has been finished since. A clone continues from there with "
        "steadynet reproduce NAME --reuse results."
    ),
    usage="DIR ... [--to DIR] [--best-of MODEL ...]",
    examples=(
        "steadynet publish experiments/rq1-mnist-laptop",
        "steadynet publish experiments/rq2-mnist-laptop --best-of M3          # with the weights of the best M3",
    ),
    configure=_configure,
    run=_run,
)
