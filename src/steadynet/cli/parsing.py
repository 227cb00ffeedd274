"""The argument parser of every command, and the flags that are made from settings.

A plug-in declares its settings as fields of a dataclass (see :mod:`steadynet.plugins`). :func:`add_settings` makes one
flag per setting and :func:`given_settings` returns those that the user gave. The flags that a command declares itself
with ``add_argument`` are stored under other names, so the two never mix.
"""

from __future__ import annotations

import argparse
import difflib
import shutil
import textwrap
import types
import typing
import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

from steadynet.errors import UserError
from steadynet.plugins import Setting, describe_type, describe_value, requirement


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with one line and the nearest right flag.

    Attributes:
        flags: Every flag that this parser knows, such as ``--help``.
        words: The words that the user typed, for flags that depend on what the user chose.
    """

    def __init__(self, **options: Any) -> None:
        self.flags: list[str] = []
        self.words: list[str] = []
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Declare an argument of the command itself."""
        action = super().add_argument(*names, **options)
        self.flags += action.option_strings
        return action

    def error(self, message: str) -> NoReturn:
        """Raise a one-line error; the caller prints it and ends with exit code 2."""
        raise UserError(f"{message} (see {self.prog} --help)")


def wrapped(text: str, indent: str = "") -> str:
    """Break a paragraph into lines that fit the terminal; ``indent`` begins every line but the first."""
    width = max(min(shutil.get_terminal_size().columns, 100) - 2, 20)
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)


def parse(parser: Parser, chosen: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parse the command line.

    Args:
        parser: The parser of the whole command line.
        chosen: The parser of the command that the user named; its flags are suggested for a misspelt one.
        arguments: The words that the user typed.

    Raises:
        UserError: An argument is wrong or unknown.
    """
    result, unknown = parser.parse_known_args(arguments)
    if unknown:
        name = unknown[0].split("=")[0]
        if name.startswith("-"):
            near = difflib.get_close_matches(name, chosen.flags, n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise UserError(f"unknown option '{name}'{hint} (see {chosen.prog} --help)")
        raise UserError(f"'{name}' is one argument too many (see {chosen.prog} --help)")
    return result


def typed_values(words: Iterable[str], flag: str) -> list[str]:
    """Return the values of one flag among the words that the user typed, before they are parsed.

    >>> typed_values(["run", "--verifiers", "milp", "mine.py:Own", "--eps", "0.1"], "--verifiers")
    ['milp', 'mine.py:Own']
    >>> typed_values(["--method=nbc"], "--method")
    ['nbc']
    """
    values, is_value = [], False
    for word in words:
        if word.startswith(f"{flag}="):
            values.append(word.partition("=")[2])
        elif word.startswith("--"):
            is_value = word == flag
        elif is_value:
            values.append(word)
    return values


def add_settings(parser: Parser, owner: str, title: str, settings: Iterable[Setting]) -> None:
    """Add one flag per setting to a group of the help called ``title``.

    A flag that the user does not give leaves no trace in the result of the parsing.

    Args:
        parser: The parser of a command.
        owner: Whose settings these are, in one word; :func:`given_settings` returns them under the same word.
        title: The heading of the group in the command's help.
        settings: The settings.
    """
    group = parser.add_argument_group(title)
    for entry in settings:
        default = "" if entry.default is None else f" (default: {describe_value(entry.default)})"
        options: dict[str, Any] = {
            "dest": _prefix(owner) + entry.name,
            "default": argparse.SUPPRESS,
            "help": (entry.help + default).replace("%", "%%"),
        }
        if entry.type is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif entry.name == "eps":
            options["metavar"] = "RADIUS"  # a number or a fraction: parse_radius reads it
        else:
            options |= {"type": _reader(entry.type), "metavar": _metavar(entry)}
        try:
            parser.flags += group.add_argument(flag_of(entry.name), **options).option_strings
        except argparse.ArgumentError:  # only a plug-in of another package can clash
            taken = f"{parser.prog} has another flag {flag_of(entry.name)}"
            warnings.warn(f"the setting '{entry.name}' ({entry.help}) has no flag: {taken}", stacklevel=2)


def given_settings(arguments: argparse.Namespace, owner: str) -> dict[str, Any]:
    """Return the settings of ``owner`` that the user gave, by name.

    >>> parser = Parser()
    >>> _ = parser.add_argument("--out")
    >>> add_settings(parser, "attack", "settings of the attack", [Setting("steps", int, 10, "steps of the attack")])
    >>> given_settings(parser.parse_args(["--out", "runs/first", "--steps", "20"]), "attack")
    {'steps': 20}
    """
    prefix = _prefix(owner)
    return {key.removeprefix(prefix): value for key, value in vars(arguments).items() if key.startswith(prefix)}


def flag_of(name: str) -> str:
    """Return the flag of a setting.

    >>> flag_of("batch_size")
    '--batch-size'
    """
    return f"--{name.replace('_', '-')}"


def _prefix(owner: str) -> str:
    return f"{owner}."


def _metavar(entry: Setting) -> str:
    words = describe_type(entry.type)
    if words in ("number", "whole number"):
        return "N"
    return words if "|" in words and "list" not in words else entry.name.upper()


def _reader(hint: Any) -> Any:
    """Return a function that reads a text as the annotated type, and says in plain words when it cannot."""

    def read(text: str) -> Any:
        for part in _parts(hint):
            try:
                return _read(text, part)
            except ValueError:
                continue
        raise argparse.ArgumentTypeError(f"{requirement(hint)}, not '{text}'")

    return read


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _read(text: str, hint: Any) -> Any:
    if typing.get_origin(hint) is typing.Literal:
        if text not in typing.get_args(hint):
            raise ValueError
        return text
    if typing.get_origin(hint) is tuple:
        return tuple(float(part) for part in text.split(","))
    if hint is type(None):
        raise ValueError
    return hint(text)
