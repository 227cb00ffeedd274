"""The settings of a plug-in: how they are declared, checked and described."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from steadynet.errors import UnknownNameError, UserError

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


def check_types(plugin: Any) -> None:
    """Check the settings of a plug-in that was made by its own constructor.

    Raises:
        UserError: A value does not have the type of its setting.
    """
    for entry in settings_of(type(plugin)):
        value = getattr(plugin, entry.name)
        if not fits(value, entry.type):
            raise UserError(f"{type(plugin).__name__}: {entry.name} = {value!r} {requirement(entry.type)}")


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
