"""Training methods, one file each. ``a+b`` joins an objective with a regulariser.

A method is a name, or ``file.py:Class`` for a class in a user's own file. A run keeps a copy of such a file in a
folder. Functions with the parameter ``sources`` take the file from that folder if it is there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from steadynet.errors import UserError
from steadynet.objectives.base import Batch, Combination, Moment, Objective, Recipe
from steadynet.plugins import choose, discover, load_class, make, split_reference

__all__ = [
    "Batch",
    "Combination",
    "Moment",
    "Objective",
    "Recipe",
    "available",
    "build",
    "named",
    "parts_of",
    "user_files",
]


def available() -> dict[str, type[Objective]]:
    """Return the classes of all training methods by name: ours, and those of other installed packages."""
    return discover(sys.modules[__name__], Objective, group="steadynet.objectives")  # type: ignore[type-abstract]


def named(part: str, sources: Path | None = None, kind: str = "method") -> type[Objective]:
    """Return the class of one part of a method.

    Args:
        part: The name of a training method, or ``file.py:Class``.
        sources: A folder with copies of users' files.
        kind: What the name stands for; for the error message.

    Raises:
        UserError: The name is unknown, or there is no usable class in the file.

    >>> named("nbc").summary
    'reward for ReLU inputs that keep their direction at the neighbour that disturbs them most'
    """
    own = split_reference(part)
    if own is None:
        if part.endswith(".py"):
            raise UserError(f"method '{part}' names no class: write {part}:MyMethod")
        return choose(kind, part, available())
    copy = sources / own[0].name if sources else own[0]
    source = copy if copy.is_file() else own[0]
    return load_class(source, own[1], Objective, "method")  # type: ignore[type-abstract]


def user_files(methods: Iterable[str]) -> list[Path]:
    """Return the users' own files that methods are in, each once.

    Raises:
        UserError: Two of them have the same name, so that a run cannot keep copies of both.

    >>> [path.name for path in user_files(["trades+nbc", "mine.py:Smoothing+nbc"])]
    ['mine.py']
    """
    references = [split_reference(part.strip()) for method in methods for part in method.split("+")]
    files = list(dict.fromkeys(own[0] for own in references if own))
    names = [path.name for path in files]
    for path in files:
        if names.count(path.name) > 1:
            raise UserError(f"the methods are in two files called {path.name}: rename one of them")
    return files


def parts_of(method: str, sources: Path | None = None) -> list[str]:
    """Return the names of the objectives that a method joins. Regularisers alone join ``natural``.

    Args:
        method: The name of a method, or several joined by ``+``.
        sources: A folder with copies of users' files.

    Raises:
        UserError: A name is unknown or given twice, or two parts are not regularisers.

    >>> parts_of("nbc"), parts_of("trades+nbc")
    (['natural', 'nbc'], ['trades', 'nbc'])
    """
    names = [name.strip() for name in method.split("+")]
    if "" in names:
        problem = "has nothing before or after a +" if "+" in method else "is empty"
        raise UserError(
            f"method '{method}' {problem}: write nbc, or trades+nbc (steadynet list methods shows all names)"
        )
    main = [name for name in names if not named(name, sources).is_regulariser]
    if len(main) > 1:
        raise UserError(f"method '{method}' joins {' and '.join(main)}: only regularisers can join another method")
    if len(set(names)) < len(names):
        raise UserError(f"method '{method}' names a part twice")
    return (main or ["natural"]) + [name for name in names if name not in main]


def build(
    method: str, settings: Mapping[str, Mapping[str, Any]] | None = None, sources: Path | None = None
) -> Objective:
    """Build the objective of a method.

    Args:
        method: The name of a method, or several joined by ``+``.
        settings: The settings of each part: ``{"nbc": {"beta": 2.0}}``. All others have their defaults.
        sources: A folder with copies of users' files.

    Raises:
        UserError: A name is unknown, or a setting does not fit.
    """
    settings = settings or {}
    parts = tuple(make(named(name, sources), settings.get(name, {})) for name in parts_of(method, sources))
    return parts[0] if len(parts) == 1 else Combination(parts=parts)
