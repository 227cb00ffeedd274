"""Grids: the networks, methods, radii and properties of an experiment, read from a TOML file and checked.

The tables of a grid are laid over each other: first the grid's own, then the model's, then the method's, then those
that the model has for this method, where the later one counts. A scale is laid over all of them before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from steadynet.errors import UnknownNameError, UserError
from steadynet.experiments.grid_tables import (
    VERIFIER,
    GridTable,
    MethodTable,
    ModelTable,
    ScaleTable,
    Tables,
    Values,
    read_model,
    read_table,
)
from steadynet.experiments.provenance import Made, made_from
from steadynet.experiments.scales import laid_over, read_shared
from steadynet.experiments.sweeps import expand, variant_of
from steadynet.experiments.tuning import TuningBudget
from steadynet.experiments.variants import Variant
from steadynet.files import read_toml
from steadynet.plugins import choose, make

GRIDS = resources.files("steadynet.experiments") / "grids"
PAPER_SCALE = "paper"  # the grid as it is


@dataclass(frozen=True)
class Grid:
    """A grid at one scale, whose keys and types have been checked.

    ``models`` and ``methods`` hold the tables of the networks and methods by name. ``files`` holds a hash of the
    content of each file of the user when the experiment was made; it is empty for a grid that was not made yet.
    """

    name: str
    title: str
    scale: str
    tables: Tables = field(repr=False)
    tuning: TuningBudget = field(repr=False)
    models: Mapping[str, ModelTable] = field(repr=False)
    methods: Mapping[str, MethodTable] = field(repr=False)
    seeds: tuple[int, ...] = (0,)  # of models that do not have their own
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def variants(self) -> dict[str, Variant]:
        """The methods by label, as tables and reports know them."""
        return {name: variant_of(name, table, self.name) for name, table in self.methods.items()}

    def seeds_of(self, model: str) -> tuple[int, ...]:
        """Return the seeds that a model is trained with, unless the user gives others."""
        return self.models[model].seeds or self.seeds

    def layered(self, table: str, model: str, method: str) -> dict[str, Any]:
        """Return a table such as ``training`` with the values that count for one model and method."""
        result: dict[str, Any] = {}
        both = self.models[model].methods.get(method, Tables())
        for source in (self.tables, self.models[model], self.methods[method], both):
            result = laid_over(result, getattr(source, table))
        return result

    def to_toml(self, made: Made) -> str:
        """Return the grid at its scale as the text of a TOML file, together with how the experiment was made."""
        content = {
            "name": self.name,
            "title": self.title,
            "seeds": self.seeds,
            **_plain(self.tables),
            "tuning": asdict(self.tuning),
            "models": {name: _plain(table) for name, table in self.models.items()},
            "methods": {name: _plain(table) for name, table in self.methods.items()},
            "made": made.to_toml(),
        }
        return tomli_w.dumps(content)


def _plain(table: Tables) -> dict[str, Any]:
    """Return a table without the keys that were not given."""
    values = {entry.name: getattr(table, entry.name) for entry in fields(table)}
    if isinstance(table, ModelTable):
        values["methods"] = {name: _plain(part) for name, part in table.methods.items()}
    return {name: value for name, value in values.items() if value is not None and value != {}}


def names() -> list[str]:
    """List the experiments that come with steadynet: the tables of the paper, and ``methods``.

    >>> names()[:3]
    ['beta', 'gamma', 'methods']
    """
    return sorted(entry.name.removesuffix(".toml") for entry in GRIDS.iterdir() if entry.name.endswith(".toml"))


def read_grid(name: str, scale: str | None = None) -> Grid:
    """Read a grid.

    Args:
        name: An experiment of :func:`names`, or the path of a ``.toml`` file.
        scale: A scale of the grid; ``paper`` stands for the grid as it is. Without a scale, too, it is as it is; a
            grid that an experiment has written keeps its scale.

    Returns:
        The grid at this scale.

    Raises:
        UserError: There is no such grid or scale, or the file has unknown keys or values of a wrong type.

    >>> grid = read_grid("beta", "laptop")
    >>> list(grid.models), list(grid.methods)
    (['C1'], ['beta=0', 'beta=1', 'beta=3', 'beta=6', 'beta=9'])
    """
    if name.endswith(".toml"):
        content = read_toml(Path(name))
    elif name in names():
        content = read_toml(Path(str(GRIDS / f"{name}.toml")))
    elif "." in name or "/" in name:
        raise UserError(f"{name} is neither an experiment of steadynet nor a .toml file")
    else:
        raise UnknownNameError("experiment", name, names())
    return grid_from(content, scale, name)


def grid_from(content: Values, scale: str | None, source: str) -> Grid:
    """Make a grid from the content of its file.

    Args:
        content: The parsed TOML file.
        scale: The scale, as for :func:`read_grid`.
        source: The name of the file, for error messages.

    Raises:
        UserError: A key, a name or a value is wrong. The message says where.
    """
    table = read_table(GridTable, content, source)
    made = made_from(table.made, source)
    scale = scale or made.scale or PAPER_SCALE
    at_scale = read_table(GridTable, _at_scale(content, table, made, scale, source), source)
    models = {name: read_model(model, f"{source} [models.{name}]") for name, model in at_scale.models.items()}
    methods = {
        name: read_table(MethodTable, method, f"{source} [methods.{name}]") for name, method in at_scale.methods.items()
    }
    for kind, tables in (("models", models), ("methods", methods)):
        if not tables:
            raise UserError(f"{source}: a grid needs tables [{kind}.NAME]")
    verifier = str(at_scale.verification.get("verifier", VERIFIER))
    for place, checked in _places(at_scale, models, methods, source).items():
        checked.check(place, verifier)
    expanded = expand(methods, source)
    for name, method in expanded.items():
        _check_method(name, method, expanded, source)
    for name, model in models.items():
        for method_name in model.methods:
            choose(f"method in {source} [models.{name}.methods]", method_name, expanded)
    name = at_scale.name or Path(source).stem
    return Grid(
        name=name,
        title=at_scale.title or name,
        scale=scale,
        tables=Tables(**{entry.name: getattr(at_scale, entry.name) for entry in fields(Tables)}),
        tuning=make(TuningBudget, at_scale.tuning),
        models=models,
        methods=expanded,
        seeds=at_scale.seeds or (0,),
        files=made.files,
    )


def _at_scale(content: Values, table: GridTable, made: Made, scale: str, source: str) -> dict[str, Any]:
    """Lay a scale over the content of a grid."""
    scales = {
        name: read_table(ScaleTable, values, f"{source} [scales.{name}]") for name, values in table.scales.items()
    }
    if scale not in (PAPER_SCALE, made.scale, *scales):
        raise UnknownNameError(f"scale of {source}", scale, [PAPER_SCALE, *scales])
    result = {key: value for key, value in content.items() if key not in ("scales", "made")}
    if scale not in scales:
        return result
    if (base := scales[scale].base) is not None:
        shared = read_shared(base, content)
        read_table(ScaleTable, shared, f"the scale that {source} [scales.{scale}] is based on")
        result = laid_over(result, shared)
    return laid_over(result, {key: value for key, value in table.scales[scale].items() if key != "base"})


def _places(
    grid: GridTable, models: Mapping[str, ModelTable], methods: Mapping[str, MethodTable], source: str
) -> dict[str, Tables]:
    """Return all tables of a grid, by the place where they stand."""
    return {
        source: grid,
        **{f"{source} [models.{name}]": table for name, table in models.items()},
        **{
            f"{source} [models.{name}.methods.{method}]": table
            for name, model in models.items()
            for method, table in model.methods.items()
        },
        **{f"{source} [methods.{name}]": table for name, table in methods.items()},
    }


def _check_method(name: str, table: MethodTable, methods: Mapping[str, MethodTable], source: str) -> None:
    place = f"{source} [methods.{name}]"
    for key, other in (("init", table.init), ("against", table.against)):
        if other is not None:
            choose(f"method as {key} of {place}", other, methods)
    if table.init is not None and methods[table.init].init is not None:
        raise UserError(f"{place}: it starts from {table.init}, which itself starts from another")
    if table.drop is not None and table.init is None:
        raise UserError(f"{place}: drop is a loss of accuracy against the method that init names")
