"""``steadynet reproduce``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser, add_settings
from steadynet.cli.plugin_flags import merged_settings, settings_for
from steadynet.errors import UserError
from steadynet.training.interruption import InterruptedByUserError, terminated_as_by_ctrl_c

if TYPE_CHECKING:
    from steadynet.experiments.engines import Engine

ENGINE = "engine"  # the owner of the engines' flags


def _configure(parser: Parser) -> None:
    from steadynet.experiments import engines
    from steadynet.experiments.grid import names

    parser.add_argument(
        "experiment", metavar="NAME", help=f"the table: {', '.join(names())}; or a grid of your own, FILE.toml"
    )
    parser.add_argument(
        "--scale",
        metavar="SCALE",
        help="how much to compute: paper (as much as the paper), laptop (fewer epochs, images and seconds per proof), "
        "smoke (only to see that it works), or a scale of your own file (default: laptop; your own file as it is)",
    )
    parser.add_argument("--out", metavar="DIR", help="the folder to write (default: experiments/NAME-SCALE)")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="KIND=NAME",
        help="compute a part of the table only, such as model=M1 method=rs,nbc",
    )
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=_seed,
        metavar="N",
        help="train one network per seed (default: those of the grid, otherwise 0)",
    )
    parser.add_argument(
        "--reuse",
        nargs="+",
        default=[],
        metavar="DIR",
        help="take finished runs with the same settings from these experiments, or folders of experiments: results "
        "holds the published ones",
    )
    parser.add_argument(
        "--until",
        choices=("train", "evaluate", "verify"),
        default="verify",
        help="stop after this stage; run the command without it for the rest (default: verify, the last)",
    )
    parser.add_argument(
        "--engine",
        default="local",
        metavar="NAME",
        help="what runs the jobs: local (this machine) or ray (a Ray cluster) (default: local)",
    )
    add_settings(parser, ENGINE, "settings of the engines", merged_settings(engines.available()))


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a seed: a seed is 0, 1, 2, …")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    from steadynet.cli.display.experiment import ExperimentDisplay, show_failures
    from steadynet.cli.display.grid_table import show_table
    from steadynet.cli.display.terminal import console
    from steadynet.experiments.directory import ExperimentDirectory
    from steadynet.experiments.grid import names, read_grid
    from steadynet.experiments.runner import reproduce

    grid = read_grid(arguments.experiment, arguments.scale or ("laptop" if arguments.experiment in names() else None))
    out = Path(arguments.out or Path("experiments") / f"{grid.name}-{grid.scale}")
    try:
        with terminated_as_by_ctrl_c(), ExperimentDisplay(grid.title) as display:
            outcome = reproduce(
                grid,
                out,
                _engine(arguments),
                seeds=list(dict.fromkeys(arguments.seeds)) if arguments.seeds else None,
                only=_only(arguments.only),
                until=arguments.until,
                reuse=[Path(path) for path in arguments.reuse],
                watcher=display,
            )
    except KeyboardInterrupt as stop:
        raise InterruptedByUserError(
            f"stopped: everything done is saved in {out}. Run the same command again to continue; "
            f"see: steadynet status {shlex.quote(str(out))}"
        ) from stop
    show_table(grid.title, outcome.rows)
    written = ExperimentDirectory(out)
    console.print(f"written: {written.table_csv}, {written.table_json}", soft_wrap=True)
    console.print(f"next:    steadynet report {shlex.quote(str(out))} --open", soft_wrap=True)
    show_failures(outcome.failures)
    return 1 if outcome.failures else 0


def _engine(arguments: argparse.Namespace) -> Engine:
    from steadynet.experiments import engines
    from steadynet.plugins import choose, make

    plugin = choose("engine", arguments.engine, engines.available())
    return make(plugin, settings_for(arguments, ENGINE, {plugin.name: plugin})[plugin.name])


def _only(words: list[str]) -> dict[str, list[str]]:
    pairs = [word.partition("=") for word in words]
    for kind, equals, names in pairs:
        if not equals or not names:
            raise UserError(f"--only takes KIND=NAME, such as model=M1 or method=rs,nbc, not '{kind}'")
    return {kind: names.split(",") for kind, _, names in pairs}


COMMAND = Command(
    summary="compute a table: a grid of networks, the paper's or your own",
    description=(
        "Reproduce a table of the paper: train, evaluate and verify a whole grid of networks and methods, and show "
        "the results beside the paper's numbers. If you stop it, run the same command again to continue."
    ),
    usage="NAME [--scale SCALE] [--only KIND=NAME ...] [--out DIR] [options]",
    examples=(
        "steadynet reproduce sabr --scale smoke --only model=M1 method=nbc    # small: does everything work?",
        "steadynet reproduce rq1-mnist --scale laptop --workers 2             # after: steadynet data fetch mnist",
    ),
    configure=_configure,
    run=_run,
)
