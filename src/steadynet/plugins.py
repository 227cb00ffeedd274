"""Plug-ins are classes found by module: a new file in a package is a new choice, everywhere, unasked.

A plug-in is a frozen dataclass with a class attribute ``name``; its fields, made with :func:`setting`, are its
settings. A setting's name means one thing in the whole project, so that one flag can set it for every plug-in.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from steadynet.errors import UnknownNameError, UserError

T = TypeVar("T")


def setting(default: Any, help: str) -> Any:
    """A dataclass field with the line that explains it to a user."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a plug-in, as the command line and ``steadynet list`` need it."""

    name: str
    type: Any
    default: Any
    help: str


def settings_of(plugin: type) -> list[Setting]:
    """The settings a plug-in declares, in their order."""
    hints = typing.get_type_hints(plugin)
    return [
        Setting(field.name, hints[field.name], field.default, field.metadata["help"])
        for field in dataclasses.fields(plugin)
        if "help" in field.metadata
    ]


def discover(package: types.ModuleType, base: type[T]) -> dict[str, type[T]]:
    """Every subclass of ``base`` with a ``name`` that a module of ``package`` declares."""
    return {plugin.name: plugin for plugin in _declared(package, base)}  # type: ignore[attr-defined]


def _declared(package: types.ModuleType, base: type[T]) -> Iterator[type[T]]:
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for value in vars(module).values():
            if (
                inspect.isclass(value)
                and issubclass(value, base)
                and value.__module__ == module.__name__
                and "name" in vars(value)
            ):
                yield value


def choose(kind: str, name: str, known: Mapping[str, T]) -> T:
    """The entry called ``name``, or an error that names the nearest right one."""
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return known[name]


def make(plugin: type[T], values: Mapping[str, Any]) -> T:
    """A plug-in with these settings; a misspelt setting or a wrong type is an error that says what is right."""
    known = {entry.name: entry for entry in settings_of(plugin)}
    name = getattr(plugin, "name", plugin.__name__)
    for key, value in values.items():
        if key not in known:
            raise UnknownNameError(f"setting of {name}", key, known)
        if not fits(value, known[key].type):
            raise UserError(f"{name}.{key} = {value!r} does not fit {describe_type(known[key].type)}")
    return plugin(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type: plain types, ``X | None``, ``Literal`` and tuples of numbers.

    >>> fits(3, float), fits("x", float), fits(None, float | None), fits((1.0, 2.0), tuple[float, ...])
    (True, False, True, True)
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is tuple:
        return isinstance(value, (tuple, list)) and all(fits(part, typing.get_args(hint)[0]) for part in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def describe_value(value: Any) -> str:
    """A setting's value as a user reads it.

    >>> [describe_value(value) for value in (None, True, 0.3, (1.0, 2.0))]
    ['–', 'yes', '0.3', '1.0,2.0']
    """
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def describe_type(hint: Any) -> str:
    """An annotated type in words a user reads.

    >>> describe_type(typing.Literal["sign", "gradient"] | None)
    'sign|gradient'
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return "|".join(describe_type(part) for part in typing.get_args(hint) if part is not type(None))
    if origin is typing.Literal:
        return "|".join(map(str, typing.get_args(hint)))
    if origin is tuple:
        return f"list of {describe_type(typing.get_args(hint)[0])}s"
    return {float: "number", int: "whole number", str: "text", bool: "yes|no"}.get(hint, str(hint))
