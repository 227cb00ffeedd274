"""Find plug-ins in the modules of a package and among the entry points of other installed packages."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import types
import warnings
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from steadynet.errors import UnknownNameError, one_line
from steadynet.plugins.requirements import UnusableError, check_plugin

T = TypeVar("T")


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


@functools.cache
def _installed(group: str, base: type[Any], built_in: frozenset[str]) -> dict[str, type[Any]]:
    """Load the plug-ins of other packages, once per process, so that each warning is given once."""
    found: dict[str, type[Any]] = {}
    owners = dict.fromkeys(built_in, "steadynet")
    for owner, entry in sorted(((_package(entry), entry) for entry in entry_points(group=group)), key=_order):
        try:
            if entry.name in owners:
                raise UnusableError(f"{owners[entry.name]} has a plug-in of this name")
            found[entry.name] = _checked(entry, base)
            owners[entry.name] = f"the package {owner}"
        except Exception as error:  # the code of another package may fail in any way
            reason = str(error) if isinstance(error, UnusableError) else f"{type(error).__name__}: {one_line(error)}"
            warnings.warn(
                f"skipped the plug-in '{entry.name}' ({group}) of the package {owner}: {reason}", stacklevel=2
            )
    return found


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "(unknown)"


def _order(owned: tuple[str, EntryPoint]) -> tuple[str, str]:
    return owned[0], owned[1].name


def _checked(entry: EntryPoint, base: type[T]) -> type[T]:
    """Load the class of an entry point and check it.

    Raises:
        UnusableError: The class is no usable plug-in.
    """
    plugin = check_plugin(entry.load(), base, entry.value)
    name = plugin.name  # type: ignore[attr-defined]
    if name != entry.name or not re.fullmatch(r"[\w-]+", name):
        raise UnusableError(f"{entry.value} has the name '{name}'; both names must be the same word")
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
