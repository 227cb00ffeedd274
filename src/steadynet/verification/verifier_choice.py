"""Make a verifier from its name. This module imports little, so that one easy instance is decided quickly."""

from __future__ import annotations

from collections.abc import Mapping

from steadynet.plugins import make
from steadynet.verification import verifiers
from steadynet.verification.verifiers import Verifier


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
    return make(verifiers.named(name), settings)
