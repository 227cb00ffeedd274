"""The command line: each command parses its arguments, calls the library and shows the result.

There is one file per command. A command imports what it needs when it runs, so that ``steadynet --help`` is quick.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from steadynet.cli import (
    aptp,
    cross_check,
    data,
    demo,
    evaluate,
    export,
    graft,
    listing,
    prune,
    publish,
    radius,
    report,
    reproduce,
    self_test,
    sparsify,
    status,
    train,
    tune,
    verify,
    view,
    vnncomp,
    zoo,
)
from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser, parse, wrapped
from steadynet.errors import UnknownNameError, UserError, one_line
from steadynet.training.distributed.torchrun_env import this_process, wait_for_rank_zero
from steadynet.training.idle_threads import let_threads_sleep
from steadynet.training.interruption import InterruptedByUserError

FIRST = """\
Try these three commands first:
  steadynet demo                                 see the idea in a minute or two
  steadynet train --method nbc --out runs/first  train on built-in data
  steadynet verify runs/first --eps 0.1          prove or refute its robustness"""

STAGES: dict[str, dict[str, Command]] = {
    "1. train": {
        "data": data.COMMAND,
        "train": train.COMMAND,
        "tune": tune.COMMAND,
        "prune": prune.COMMAND,
        "graft": graft.COMMAND,
        "sparsify": sparsify.COMMAND,
    },
    "2. verify": {
        "evaluate": evaluate.COMMAND,
        "verify": verify.COMMAND,
        "radius": radius.COMMAND,
        "cross-check": cross_check.COMMAND,
        "export": export.COMMAND,
        "vnncomp": vnncomp.COMMAND,
        "aptp": aptp.COMMAND,
        "self-test": self_test.COMMAND,
    },
    "3. report": {"report": report.COMMAND, "view": view.COMMAND, "publish": publish.COMMAND},
    "all stages at once": {"demo": demo.COMMAND, "reproduce": reproduce.COMMAND, "status": status.COMMAND},
    "look up": {"list": listing.COMMAND, "zoo": zoo.COMMAND},
}
COMMANDS = {name: command for commands in STAGES.values() for name, command in commands.items()}


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after ``steadynet``; those of the process by default.

    Returns:
        The exit code: 0 when all went well, 1 when verifiers contradict each other, a verdict is wrong or a job failed,
        2 when the user made a mistake, 130 when the user interrupted.
    """
    let_threads_sleep()  # before a command imports PyTorch
    try:
        with _one_line_warnings():
            parsed = parse_command_line(sys.argv[1:] if arguments is None else arguments)
            return COMMANDS[parsed.command].run(parsed) or 0
    except InterruptedByUserError as stop:
        return _stop(str(stop))
    except UserError as error:
        return _fail(f"error: {error}")
    except KeyboardInterrupt:
        return _stop("interrupted")
    except BrokenPipeError:
        return 0
    except OSError as error:  # an error that no module explains, such as a missing permission or a full disk
        return _fail(f"error: {f'{error.filename}: ' if error.filename else ''}{one_line(error)}")


def parse_command_line(arguments: list[str]) -> argparse.Namespace:
    """Parse the words after ``steadynet``.

    Returns:
        The arguments of the command; ``command`` is its name and ``words`` are the words as the user typed them.

    Raises:
        UserError: An argument is wrong, missing or unknown.
    """
    from steadynet import __version__

    parser = Parser(prog="steadynet", usage="steadynet COMMAND [options]", description=_overview())
    parser.add_argument("--version", action="version", version=f"steadynet {__version__}", help="print the version")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", parser_class=Parser, prog="steadynet", help=argparse.SUPPRESS
    )
    named = next((word for word in arguments if not word.startswith("-")), None)
    chosen = parser
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            usage=f"steadynet {name} {command.usage}",
            description=wrapped(command.description),
            epilog=command.epilogue,
        )
        if name == named:  # only this command needs its flags, and what they import
            subparser.words = arguments
            command.configure(subparser)
            chosen = subparser
    if not arguments:
        parser.print_help()
        raise SystemExit(0)
    if named is not None and named not in COMMANDS:
        raise UnknownNameError("command", named, COMMANDS)
    parsed = parse(parser, chosen, arguments)
    if parsed.command is None:
        raise UserError(f"name a command: {', '.join(COMMANDS)} (see steadynet --help)")
    parsed.words = arguments
    return parsed


def _overview() -> str:
    """Return the text of ``steadynet --help``: the first steps, then the commands by stage."""
    parts = ["Train neural networks that can be proved robust.", FIRST, "The commands, by stage of the work:"]
    for stage, commands in STAGES.items():
        lines = [wrapped(f"  {name:<13}{command.summary}", indent=15 * " ") for name, command in commands.items()]
        parts.append("\n".join([f"{stage}:", *lines]))
    return "\n\n".join([*parts, "steadynet COMMAND --help explains a command and ends with examples."])


def _fail(line: str) -> int:
    _say(wait_for_rank_zero() + line)
    return 2


def _stop(line: str) -> int:
    if not wait_for_rank_zero(0.5):  # of several processes, the first one speaks for all
        _say(line)
    return 130


def _say(line: str) -> None:
    sys.stderr.write(f"steadynet: {' '.join(line.split())}\n")


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Print a warning as one line, without the line of source code that raised it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if this_process().is_rank_zero:
            _say(f"warning: {message}")

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before
