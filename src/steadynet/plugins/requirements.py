"""What a class needs to be a plug-in of its kind."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from typing import Any, ClassVar, TypeVar

from steadynet.plugins.settings import fits, requirement, settings_of

T = TypeVar("T")


class UnusableError(Exception):
    """Why a class cannot be used as a plug-in."""


def check_plugin(plugin: Any, base: type[T], label: str) -> type[T]:
    """Check everything that the rest of the project relies on.

    Args:
        plugin: What should be the class of a plug-in.
        base: The class that every plug-in of this kind derives from.
        label: What the message calls the class.

    Returns:
        The class itself.

    Raises:
        UnusableError: It is no usable plug-in.
    """
    if not inspect.isclass(plugin) or not issubclass(plugin, base):
        raise UnusableError(f"{label} is not a subclass of {base.__module__}.{base.__name__}")
    facts = [name for name, hint in typing.get_type_hints(base).items() if typing.get_origin(hint) is ClassVar]
    missing = [name for name in facts if not hasattr(plugin, name)] + sorted(getattr(plugin, "__abstractmethods__", ()))
    if missing:
        raise UnusableError(f"{label} does not define {', '.join(missing)}")
    if any(isinstance(value, dataclasses.Field) for value in vars(plugin).values()):
        raise UnusableError(f"{label} has settings, so that it must be a dataclass")
    for one in settings_of(plugin):
        if not fits(one.default, one.type):
            raise UnusableError(f"its setting {one.name} = {one.default!r} {requirement(one.type)}")
    return plugin
