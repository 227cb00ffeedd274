"""Scales: tables that are laid over a grid to make it smaller. Some are shared by many grids."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from steadynet.errors import UnknownNameError
from steadynet.files import read_toml

SCALES = resources.files("steadynet.experiments") / "grids" / "scales"


def shared_names() -> list[str]:
    """List the shared scales.

    >>> shared_names()
    ['laptop', 'smoke']
    """
    return sorted(entry.name.removesuffix(".toml") for entry in SCALES.iterdir() if entry.name.endswith(".toml"))


def read_shared(name: str, grid: Mapping[str, Any]) -> dict[str, Any]:
    """Read a scale from a file of its own.

    Args:
        name: A shared scale, or the path of a ``.toml`` file.
        grid: The content of the grid. The scale may have tables of models and methods that the grid does not have;
            these are left out.

    Raises:
        UserError: There is no such scale, or its file cannot be read.
    """
    if not name.endswith(".toml") and name not in shared_names():
        raise UnknownNameError("shared scale", name, shared_names())
    content = read_toml(Path(name) if name.endswith(".toml") else Path(str(SCALES / f"{name}.toml")))
    for kind in ("models", "methods"):
        tables, known = content.get(kind), grid.get(kind)
        if isinstance(tables, dict) and isinstance(known, dict):
            content[kind] = {key: table for key, table in tables.items() if key in known}
    return content


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested tables. Where both have a value, the second one counts.

    >>> laid_over({"a": 1, "t": {"x": 1, "y": 2}}, {"t": {"y": 3}})
    {'a': 1, 't': {'x': 1, 'y': 3}}
    """
    result = copy.deepcopy(dict(below))
    for key, value in above.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = laid_over(result[key], value) if nested else copy.deepcopy(value)
    return result
