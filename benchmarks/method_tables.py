"""The part of ``methods.toml`` that benchmarks write: the settings of each model's methods in the scale laptop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steadynet.experiments.cells import Cell, cells_of
from steadynet.experiments.grid import GRIDS, read_grid
from steadynet.experiments.grid_tables import Tables
from steadynet.files import read_toml, write_text
from steadynet.training.settings import TrainingSettings, resolve

GRID = Path(str(GRIDS / "methods.toml"))
SCALE = "laptop"
MARK = "# The rest of this file is written by benchmarks/method_minutes.py and benchmarks/tune_methods.py.\n"
MINUTES = {"M1": 2.0, "C1": 4.0}  # CPU minutes of a training, by network
Place = tuple[str, str]  # the names of a model and of a method in the grid


@dataclass(frozen=True)
class MethodSettings:
    """What the grid gives one method with one model: settings of the training, and of the parts of the method."""

    training: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def add_choice(parser: Any) -> None:
    """Add the arguments that choose some models and methods, and the one that writes the grid."""
    parser.add_argument("--models", nargs="+", metavar="NAME", help="models of the grid, such as M1@0.1 (default: all)")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="methods of the grid (default: all)")
    parser.add_argument("--write", action="store_true", help=f"write the settings into {GRID.name}")


def chosen_cells(models: list[str] | None, methods: list[str] | None) -> list[Cell]:
    """The cells of the grid that were chosen, each with seed 0 and as they are before tuning."""
    only = {"model": models, "method": methods}
    grid = read_grid("methods", SCALE)
    untuned = {name: replace(table, methods=_untuned(table.methods)) for name, table in grid.models.items()}
    grid = replace(grid, models=untuned)
    return cells_of(grid, [0], {kind: names for kind, names in only.items() if names})


def _untuned(tables: Mapping[str, Tables]) -> dict[str, Tables]:
    """The tables of a model's methods without what tuning chose: the learning rate and the settings of parts."""
    kept = {
        name: {key: value for key, value in table.training.items() if key != "lr"} for name, table in tables.items()
    }
    return {name: Tables(training=training) for name, training in kept.items()}


def read_settings() -> dict[Place, MethodSettings]:
    """What the grid gives each method with each model now."""
    models = read_toml(GRID)["scales"][SCALE].get("models", {})
    return {
        (model, method): MethodSettings(**table)
        for model, values in models.items()
        for method, table in values.get("methods", {}).items()
    }


def as_toml(settings: Mapping[Place, MethodSettings]) -> str:
    """The tables of the grid file, in the order of the grid."""
    grid = read_grid("methods", SCALE)
    tables = []
    for model in grid.models:
        for method in grid.methods:
            if (model, method) in settings:
                found = settings[model, method]
                lines = [f'[scales.{SCALE}.models."{model}".methods."{method}"]']
                lines += [f"training = {_value(found.training)}"] if found.training else []
                lines += [f"parts = {_value(found.parts)}"] if found.parts else []
                tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_value(part)}" for name, part in value.items()) + " }"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def show(settings: Mapping[Place, MethodSettings], write: bool) -> None:
    """Print the tables of these methods. With ``write``, put them into the grid file; other methods keep theirs."""
    print(as_toml(settings))
    if write:
        before, mark, _ = GRID.read_text(encoding="utf-8").partition(MARK)
        if not mark:
            raise SystemExit(f"{GRID} has no line: {MARK}")
        write_text(GRID, f"{before}{MARK}\n{as_toml({**read_settings(), **settings})}")
        print(f"written: {GRID}")


def rises_by_itself(settings: TrainingSettings) -> bool:
    """Whether the method's recipe makes ε rise. For the other methods that attack, the grid has to."""
    given = {"data": settings.data, "eps": settings.eps, "method": settings.plan[0].method, "recipe": "paper"}
    return bool(resolve(given).warmup)
