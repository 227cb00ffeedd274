"""The command line: parse, call, show. One file a command; what a command needs is imported when it runs."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from steadynet.cli import (
    cross_check,
    data,
    demo,
    evaluate,
    export,
    listing,
    prune,
    report,
    reproduce,
    status,
    train,
    tune,
    verify,
    view,
    vnncomp,
)
from steadynet.cli.parsing import Parser, parse
from steadynet.errors import UnknownNameError, UserError, one_line
from steadynet.training.distributed.torchrun_env import give_way, this_process
from steadynet.training.interruption import InterruptedByUserError

EPILOGUE = """\
first steps:
  steadynet demo                                        two networks, side by side, in minutes
  steadynet train --data digits --method nbc --out runs/first
  steadynet evaluate runs/first --eps 0.1 0.2 0.3
  steadynet verify runs/first --eps 0.1 --timeout 10    proofs and counterexamples
  steadynet report runs/first --open                    tables, figures and a page to look at
"""

COMMANDS = {
    "demo": demo.COMMAND,
    "train": train.COMMAND,
    "evaluate": evaluate.COMMAND,
    "verify": verify.COMMAND,
    "cross-check": cross_check.COMMAND,
    "tune": tune.COMMAND,
    "reproduce": reproduce.COMMAND,
    "status": status.COMMAND,
    "report": report.COMMAND,
    "view": view.COMMAND,
    "prune": prune.COMMAND,
    "export": export.COMMAND,
    "vnncomp": vnncomp.COMMAND,
    "data": data.COMMAND,
    "list": listing.COMMAND,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code.

    0 when it went well, 1 where verifiers contradict or a job failed, 2 for a mistake, 130 when interrupted.
    """
    try:
        with _one_line_warnings():
            parsed = _parse(sys.argv[1:] if arguments is None else arguments)
            return COMMANDS[parsed.command].run(parsed) or 0
    except InterruptedByUserError as stop:
        return _stop(str(stop))
    except UserError as error:
        return _end(2, f"error: {error}")
    except KeyboardInterrupt:
        return _stop("interrupted")
    except BrokenPipeError:
        return 0
    except OSError as error:  # what no module has words for: a missing right, a broken disk, a name too long
        return _end(2, f"error: {f'{error.filename}: ' if error.filename else ''}{one_line(error)}")


def _end(code: int, line: str) -> int:
    _say(give_way() + line)
    return code


def _stop(line: str) -> int:
    if not give_way(0.5):  # of several processes, the first one speaks for all
        _say(line)
    return 130


def _say(line: str) -> None:
    sys.stderr.write(f"steadynet: {' '.join(line.split())}\n")


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """A warning is one line for its reader, not a line of our source."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if this_process().is_first:
            _say(f"warning: {message}")

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


def _parse(arguments: list[str]) -> argparse.Namespace:
    from steadynet import __version__

    parser = Parser(prog="steadynet", description="Train neural networks that can be proved robust.", epilog=EPILOGUE)
    parser.add_argument("--version", action="version", version=f"steadynet {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    chosen = parser
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.help, description=f"{command.help}.")
        if name == asked:  # only the command asked for needs its flags, and what they import
            command.configure(subparser)
            chosen = subparser
    if not arguments:
        parser.print_help()
        raise SystemExit(0)
    if asked is not None and asked not in COMMANDS:
        raise UnknownNameError("command", asked, COMMANDS)
    parsed = parse(parser, chosen, arguments)
    parsed.words = arguments  # as the user typed them
    if parsed.command is None:
        raise UserError(f"name a command: {', '.join(COMMANDS)} (see steadynet --help)")
    return parsed
