"""What a subcommand is."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NamedTuple

from steadynet.cli.parsing import Parser


class Command(NamedTuple):
    """One subcommand: what it is for, its arguments, and what it does; an exit code other than 0 is returned."""

    help: str
    configure: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], int | None]


def count(text: str) -> int:
    """An argument that is a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def add_device(parser: Parser, what: str) -> None:
    """The flag that says where to compute."""
    names = ("auto", "cpu", "cuda")
    parser.add_argument(
        "--device", choices=names, default="cpu", metavar="|".join(names), help=f"where to {what} [cpu]"
    )


def seconds(text: str) -> float:
    """An argument that is a time above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time in seconds above 0")
    return value
