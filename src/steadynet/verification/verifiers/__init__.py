"""Verifiers, one file each."""

from __future__ import annotations

import sys

from steadynet.errors import UserError
from steadynet.plugins import choose, discover, load_class, split_reference
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.verifiers.base import Verifier

__all__ = ["Properties", "Result", "Verdict", "Verifier", "available", "named"]


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
