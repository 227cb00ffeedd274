"""Command-line flags made from settings: a new field is a new flag, with its help and its default."""

from __future__ import annotations

import argparse
import difflib
import types
import typing
from collections.abc import Iterable
from typing import Any, NoReturn

from steadynet.errors import UserError
from steadynet.plugins import Setting, describe_type, describe_value


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with one line and the nearest right flag."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """One line; the command line prints it and ends with 2."""
        raise UserError(f"{message} (see {self.prog} --help)")

    def flags(self) -> list[str]:
        """Every flag this parser knows."""
        return [flag for flag in self._option_string_actions if flag.startswith("--")]


def parse(parser: Parser, chosen: Parser, arguments: list[str]) -> argparse.Namespace:
    """The arguments; one that nobody knows is an error that names the nearest flag."""
    result, strange = parser.parse_known_args(arguments)
    if strange:
        name = strange[0].split("=")[0]
        if name.startswith("-"):
            near = difflib.get_close_matches(name, chosen.flags(), n=1)
            raise UserError(
                f"unknown option '{name}'{f': did you mean {near[0]}?' if near else ''} (see {chosen.prog} --help)"
            )
        raise UserError(f"'{name}' is one argument too many (see {chosen.prog} --help)")
    return result


def add_flags(parser: argparse._ArgumentGroup, settings: Iterable[Setting]) -> None:
    """One flag a setting; a flag that is not given leaves no trace in the result."""
    for entry in settings:
        flag = "--" + entry.name.replace("_", "-")
        default = "" if entry.default is None else f" [{describe_value(entry.default)}]"
        text = (entry.help + default).replace("%", "%%")
        options: dict[str, Any] = {"dest": entry.name, "default": argparse.SUPPRESS, "help": text}
        if entry.type is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, **options)
        elif entry.name == "eps":
            parser.add_argument(flag, metavar="RADIUS", **options)  # a number or a fraction, read by parse_radius
        else:
            options |= {"type": _reader(entry.type), "metavar": _metavar(entry)}
            parser.add_argument(flag, **options)


def _metavar(entry: Setting) -> str:
    words = describe_type(entry.type)
    if words in ("number", "whole number"):
        return "N"
    return words if "|" in words and "list" not in words else entry.name.upper()


def _reader(hint: Any) -> Any:
    """A function from text to the annotated type, whose complaint is fit to be read."""

    def read(text: str) -> Any:
        for part in _parts(hint):
            try:
                return _read(text, part)
            except ValueError:
                continue
        raise argparse.ArgumentTypeError(f"'{text}' does not fit {describe_type(hint)}")

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
