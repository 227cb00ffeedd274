"""Plug-ins: training methods, verifiers, data sets and engines, which are found rather than registered.

A plug-in is a frozen dataclass that derives from the base class of its kind and has a class attribute ``name``. Its
fields made with :func:`setting` are its settings; the command line makes one flag per setting.

:func:`discover` finds a plug-in in either of two places: a module of the package of its kind
(``steadynet/objectives/<name>.py``), or an entry point that another installed package declares.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import types
import typing
import warnings
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, TypeVar

from steadynet.errors import UnknownNameError, UserError, one_line

T = TypeVar("T")


def setting(default: Any, help: str) -> Any:
    """Declare a setting of a plug-in: a dataclass field with a line of help.

    Args:
        default: The value of the setting unless the user gives another.
        help: What the setting means, in one line; ``steadynet list`` and ``--help`` show it.

    Returns:
        A dataclass field.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Attack:
    ...     steps: int = setting(10, "steps of the attack")
    >>> Attack().steps, settings_of(Attack)[0].help
    (10, 'steps of the attack')
    """
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a plug-in, as the command line and ``steadynet list`` need it.

    Attributes:
        name: The name of the dataclass field.
        type: The annotated type of the field.
        default: The value unless the user gives another.
        help: What the setting means, in one line.
    """

    name: str
    type: Any
    default: Any
    help: str


def settings_of(plugin: type) -> tuple[Setting, ...]:
    """Return the settings that a plug-in declares, in the order of its fields."""
    return _settings_of(plugin)


@functools.cache
def _settings_of(plugin: type) -> tuple[Setting, ...]:
    hints = typing.get_type_hints(plugin)
    return tuple(
        Setting(field.name, hints[field.name], field.default, field.metadata["help"])
        for field in dataclasses.fields(plugin)
        if "help" in field.metadata
    )


def discover(package: types.ModuleType, base: type[T], group: str | None = None) -> dict[str, type[T]]:
    """Find every plug-in of one kind.

    Args:
        package: The package whose modules declare the built-in plug-ins.
        base: The class that every plug-in of this kind derives from.
        group: The entry points under which other installed packages declare plug-ins of this kind, such as
            ``steadynet.objectives``. Each entry point has the name of its plug-in and refers to its class. One that
            cannot be used, or whose name is taken, is skipped with a warning that names the package it comes from.

    Returns:
        The classes of the plug-ins by name.
    """
    kind: Any = base  # mypy does not know that classes are hashable
    built_in = {plugin.name: plugin for plugin in _declared(package.__name__, tuple(package.__path__), kind)}
    return built_in if group is None else built_in | _installed(group, kind, frozenset(built_in))


@functools.cache
def _declared(package: str, folders: tuple[str, ...], base: type[Any]) -> tuple[type[Any], ...]:
    """Import the modules in the folders of a package, and return the plug-ins that they define."""
    modules = [importlib.import_module(f"{package}.{info.name}") for info in pkgutil.iter_modules(folders)]
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and "name" in vars(value)
    )


class _UnusableError(Exception):
    """Why an entry point cannot be used."""


@functools.cache
def _installed(group: str, base: type[Any], built_in: frozenset[str]) -> dict[str, type[Any]]:
    """Load the plug-ins of other packages, once per process, so that each warning is given once."""
    found: dict[str, type[Any]] = {}
    owners = dict.fromkeys(built_in, "steadynet")
    for owner, entry in sorted(((_package(entry), entry) for entry in entry_points(group=group)), key=_order):
        try:
            if entry.name in owners:
                raise _UnusableError(f"{owners[entry.name]} has a plug-in of this name")
            found[entry.name] = _checked(entry, base)
            owners[entry.name] = f"the package {owner}"
        except Exception as error:  # the code of another package may fail in any way
            reason = str(error) if isinstance(error, _UnusableError) else f"{type(error).__name__}: {one_line(error)}"
            warnings.warn(
                f"skipped the plug-in '{entry.name}' ({group}) of the package {owner}: {reason}", stacklevel=2
            )
    return found


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "(unknown)"


def _order(owned: tuple[str, EntryPoint]) -> tuple[str, str]:
    return owned[0], owned[1].name


def _checked(entry: EntryPoint, base: type[T]) -> type[T]:
    """Load the class of an entry point and check everything that the rest of the project relies on.

    Raises:
        _UnusableError: The class is no usable plug-in.
    """
    plugin = entry.load()
    if not inspect.isclass(plugin) or not issubclass(plugin, base):
        raise _UnusableError(f"{entry.value} is not a subclass of {base.__module__}.{base.__name__}")
    facts = [name for name, hint in typing.get_type_hints(base).items() if typing.get_origin(hint) is ClassVar]
    missing = [name for name in facts if not hasattr(plugin, name)] + sorted(getattr(plugin, "__abstractmethods__", ()))
    if missing:
        raise _UnusableError(f"{entry.value} does not define {', '.join(missing)}")
    name = plugin.name  # type: ignore[attr-defined]
    if name != entry.name or not re.fullmatch(r"[\w-]+", name):
        raise _UnusableError(f"{entry.value} has the name '{name}'; both names must be the same word")
    if any(isinstance(value, dataclasses.Field) for value in vars(plugin).values()):
        raise _UnusableError(f"{entry.value} has settings, so that it must be a dataclass")
    for one in settings_of(plugin):
        if not fits(one.default, one.type):
            raise _UnusableError(f"its setting {one.name} = {one.default!r} {requirement(one.type)}")
    return plugin


def choose(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Look up a name that the user gave.

    Args:
        kind: What the name stands for, such as "verifier"; for the error message.
        name: The name.
        known: What there is, by name.

    Returns:
        The entry of that name.

    Raises:
        UnknownNameError: There is no such entry. The message suggests the nearest name.

    >>> choose("colour", "red", {"red": 1, "green": 2})
    1
    """
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return known[name]


def make(plugin: type[T], values: Mapping[str, Any]) -> T:
    """Create a plug-in with the given settings.

    Args:
        plugin: The class of the plug-in.
        values: Values of its settings by name. The others keep their defaults; a list becomes a tuple.

    Returns:
        The plug-in.

    Raises:
        UnknownNameError: The plug-in has no such setting.
        UserError: A value does not have the type of its setting.
    """
    known = {entry.name: entry for entry in settings_of(plugin)}
    name = getattr(plugin, "name", plugin.__name__)
    for key, value in values.items():
        if key not in known:
            raise UnknownNameError(f"setting of {name}", key, known)
        if not fits(value, known[key].type):
            raise UserError(f"{name}.{key} = {value!r} {requirement(known[key].type)}")
    return plugin(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has an annotated type.

    The type may be a plain type, ``X | None``, a ``Literal`` or a tuple of numbers. An int fits float; a bool does not
    fit int.

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
    """Write the value of a setting as a user reads it.

    >>> [describe_value(value) for value in (None, True, 0.3, (1.0, 2.0))]
    ['–', 'yes', '0.3', '1.0,2.0']
    """
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def describe_type(hint: Any) -> str:
    """Write an annotated type in words that a user understands.

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
    if origin in (dict, Mapping):
        return "table"
    return {float: "number", int: "whole number", str: "text", bool: "yes|no"}.get(hint, str(hint))


def requirement(hint: Any) -> str:
    """Say what a value of an annotated type must be, for error messages.

    >>> requirement(int), requirement(tuple[float, ...])
    ('must be a whole number', 'must be a list of numbers')
    >>> requirement(typing.Literal["sign", "gradient", "none"] | None)
    'must be sign, gradient or none'
    """
    *others, last = _alternatives(hint)
    return f"must be {', '.join(others)} or {last}" if others else f"must be {last}"


def _alternatives(hint: Any) -> list[str]:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(hint) if part is not type(None)]
        return [alternative for part in parts for alternative in _alternatives(part)]
    if origin is typing.Literal:
        return [str(choice) for choice in typing.get_args(hint)]
    if hint is bool:
        return ["true", "false"]
    words = describe_type(hint)
    return [f"a {words}" if words.startswith(("number", "whole", "list", "table")) else words]
