"""Verifiers, one file each."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from steadynet.errors import UserError
from steadynet.plugins import choose, discover, load_class, make, split_reference
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.verifiers.base import Verifier

__all__ = ["Properties", "Result", "Verdict", "Verifier", "available", "make_verifier", "named"]


def available() -> dict[str, type[Verifier]]:
    """Return the classes of all verifiers by name: ours, and those of other installed packages."""
    return discover(sys.modules[__name__], Verifier, group="steadynet.verifiers")  # type: ignore[type-abstract]


def named(name: str) -> type[Verifier]:
    """Return the class of a verifier.

    Args:
        name: The name of a verifier, or ``file.py:Class`` for a class in a user's own file.

    Raises:
        UserError: The name is unknown, there is no usable class in the file, or the class has the name of another
            verifier, so that tables of verdicts would mix the two up.

    >>> named("milp").name
    'milp'
    """
    own, known = split_reference(name), available()
    if own is None:
        if name.endswith(".py"):
            raise UserError(f"verifier '{name}' names no class: write {name}:MyVerifier")
        return choose("verifier", name, known)
    plugin = load_class(*own, Verifier, "verifier")  # type: ignore[type-abstract]
    if plugin.name in known:
        raise UserError(f"{name} has the name '{plugin.name}', as another verifier has: give it a name of its own")
    return plugin


def make_verifier(name: str, settings: Mapping[str, object]) -> Verifier:
    """Make a verifier from its name and its settings.

    Args:
        name: The name of a verifier (``steadynet list verifiers`` shows them), or ``file.py:Class``.
        settings: The values of its settings. Those that are missing have their defaults.

    Returns:
        The verifier, which can be called with :class:`~steadynet.verification.properties.Properties`.

    Raises:
        UserError: The verifier or a setting is unknown (the message names the nearest one), a value does not fit, or
            the verifier needs a program that is not installed.

    Example:
        >>> make_verifier("milp", {"timeout": 5}).timeout
        5
    """
    return make(named(name), settings)
