"""Training methods, one file each. ``a+b`` joins an objective with a regulariser."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from steadynet.errors import UserError
from steadynet.objectives.base import Batch, Combination, Moment, Objective, Recipe
from steadynet.plugins import choose, discover, make

__all__ = ["Batch", "Combination", "Moment", "Objective", "Recipe", "available", "build", "parts_of"]


def available() -> dict[str, type[Objective]]:
    """Return the classes of all training methods by name: ours, and those of other installed packages."""
    return discover(sys.modules[__name__], Objective, group="steadynet.objectives")  # type: ignore[type-abstract]


def parts_of(method: str) -> list[str]:
    """Return the names of the objectives that a method joins. Regularisers alone join ``natural``.

    Raises:
        UserError: A name is unknown or given twice, or two parts are not regularisers.

    >>> parts_of("nbc"), parts_of("trades+nbc")
    (['natural', 'nbc'], ['trades', 'nbc'])
    """
    known = available()
    names = [name.strip() for name in method.split("+")]
    if "" in names:
        problem = "has nothing before or after a +" if "+" in method else "is empty"
        raise UserError(
            f"method '{method}' {problem}: write nbc, or trades+nbc (steadynet list methods shows all names)"
        )
    main = [name for name in names if not choose("method", name, known).is_regulariser]
    if len(main) > 1:
        raise UserError(f"method '{method}' joins {' and '.join(main)}: only regularisers can join another method")
    if len(set(names)) < len(names):
        raise UserError(f"method '{method}' names a part twice")
    return (main or ["natural"]) + [name for name in names if name not in main]


def build(method: str, settings: Mapping[str, Mapping[str, Any]] | None = None) -> Objective:
    """Build the objective of a method.

    Args:
        method: The name of a method, or several joined by ``+``.
        settings: The settings of each part: ``{"nbc": {"beta": 2.0}}``. All others have their defaults.

    Raises:
        UserError: A name is unknown, or a setting does not fit.
    """
    known, settings = available(), settings or {}
    parts = tuple(make(known[name], settings.get(name, {})) for name in parts_of(method))
    return parts[0] if len(parts) == 1 else Combination(parts=parts)
