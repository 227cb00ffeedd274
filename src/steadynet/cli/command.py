"""What a command is, and the arguments that several commands share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

from steadynet.cli.parsing import Parser


@dataclass(frozen=True)
class Command:
    """One command of the command line.

    Attributes:
        summary: What it does, in a few words for ``steadynet --help``.
        description: What it does, in one plain sentence or two: the beginning of its own help.
        usage: Its most important arguments, as its help shows them.
        examples: One or two command lines that work, with a remark after ``#``: the end of its own help.
        configure: Declares its arguments.
        run: Does the work; returns an exit code, or None for 0.
        details: More text for its own help, above the examples.
    """

    summary: str
    description: str
    usage: str
    examples: tuple[str, ...]
    configure: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], int | None]
    details: str = ""

    @property
    def epilogue(self) -> str:
        """The end of the command's help: its details and its examples."""
        examples = "\n".join(["examples:", *(f"  {example}" for example in self.examples)])
        return f"{self.details.strip()}\n\n{examples}" if self.details else examples


def positive_integer(text: str) -> int:
    """Read an argument that is a whole number above 0.

    >>> positive_integer("12")
    12
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def positive_seconds(text: str) -> float:
    """Read an argument that is a time above 0.

    >>> positive_seconds("0.5")
    0.5
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time in seconds above 0")
    return value


def add_run(parser: Parser) -> None:
    """Add the argument that names a run directory."""
    parser.add_argument("run", metavar="RUN", help="the directory of a finished run: what you gave as --out to train")


def add_network(parser: Parser, run_flag: str = "--out") -> None:
    """Add the arguments that name a network: a run, or a network that was trained elsewhere.

    Args:
        parser: The parser of the command.
        run_flag: The flag for the run directory of a network that was trained elsewhere.
    """
    parser.add_argument(
        "run",
        metavar="NETWORK",
        help="a run directory (what you gave as --out to train), an ONNX file, or file.py:factory with --weights",
    )
    group = parser.add_argument_group("networks that were trained elsewhere")
    group.add_argument("--weights", metavar="FILE", help="the weights for file.py:factory, as .pt or .safetensors")
    group.add_argument(
        "--mean", type=float, nargs="+", metavar="M", help="normalise images before the network: mean of each channel"
    )
    group.add_argument("--std", type=float, nargs="+", metavar="S", help="standard deviation of each channel, likewise")
    group.add_argument(
        run_flag, dest="imported_run", metavar="RUN", help="the run directory to make of it (default: runs/NAME)"
    )


def add_radii(parser: Parser) -> None:
    """Add the flag for the radii of the perturbation."""
    parser.add_argument(
        "--eps",
        nargs="+",
        metavar="RADIUS",
        help="radii of the perturbation, such as 0.1 or 8/255 (default: the radius that the run was trained for)",
    )


def add_data(parser: Parser) -> None:
    """Add the flag for another data set than the run's own."""
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="take the test images of this data set (a name, an .npz file, a folder of pictures), not the run's own",
    )


def add_device(parser: Parser, what: str) -> None:
    """Add the flag that says where to compute."""
    names = ("auto", "cpu", "cuda")
    parser.add_argument(
        "--device", choices=names, default="cpu", metavar="|".join(names), help=f"where to {what} (default: cpu)"
    )


def add_threads(parser: Parser) -> None:
    """Add the flag for the number of CPU threads; :func:`use_threads` follows it."""
    parser.add_argument(
        "--threads", type=positive_integer, metavar="N", help="number of CPU threads (default: all cores)"
    )


def use_threads(arguments: argparse.Namespace) -> None:
    """Make PyTorch compute with as many threads as the user wants."""
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)


def add_json(parser: Parser) -> None:
    """Add the flag for output that a program can read."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def add_runs(parser: Parser) -> None:
    """Add the argument that names what a report is about."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUNS",
        help="run directories, experiments, folders that hold them, or verified ONNX files",
    )


def add_pictures(parser: Parser) -> None:
    """Add the flag for how many counterexamples a report draws."""
    parser.add_argument(
        "--pictures",
        type=positive_integer,
        default=5000,
        metavar="N",
        help="draw at most N counterexamples (default: 5000)",
    )
