"""A grid as its TOML file says it: networks, methods, radii, tasks and time-outs; an unknown key is an error.

A grid's tables are laid over each other, the later the stronger: the grid's own, the model's, the method's; a scale is
laid over all of them first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from steadynet import objectives
from steadynet.errors import UnknownNameError, UserError
from steadynet.experiments.scales import laid_over, read_shared
from steadynet.experiments.tuning import TuningBudget
from steadynet.files import read_toml
from steadynet.plugins import choose, make, settings_of
from steadynet.training.settings import TrainingSettings
from steadynet.verification import verifiers

GRIDS = resources.files("steadynet.experiments") / "grids"
PAPER_SCALE = "paper"  # the grid as it is
SHARED = (
    "training",
    "parts",
    "verification",
    "evaluation",
    "resources",
)  # tables that models and methods may have, too
KINDS = ("train", "evaluate", "verify")  # of tasks, which may ask for CPUs and GPUs of their own
KEYS = {
    "grid": ("name", "title", *SHARED, "tuning", "models", "methods", "scales", "made"),
    "scale": ("base", *SHARED, "tuning", "models", "methods"),
    "model": ("network", *SHARED),
    "method": ("phases", "init", "drop", "against", *SHARED),
    "verification": ("eps", "per_class", "tasks", "verifier", "shard"),  # and the verifier's own settings
    "evaluation": ("pgd_steps", "images"),
    "resources": ("cpus", "gpus", *KINDS),
    "demand": ("cpus", "gpus"),
}
ELSEWHERE = {
    "method": "a method of the grid is a table: [methods.nbc]",
    "phases": "phases belong to a method: [methods.nbc]",
    "methods": "the settings of a part of a method belong in [parts.nbc]",
    "seed": "seeds are given as --seeds",
    "init": "a method of the grid names the method it starts from: init = 'natural'",
    "model": "a model of the grid is a table: [models.M1]",
}


@dataclass(frozen=True)
class Grid:
    """A grid at one scale, checked."""

    name: str
    title: str
    scale: str
    content: dict[str, Any] = field(repr=False)
    files: Mapping[str, str] = field(default_factory=dict)  # what the user's files held when the experiment was made

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        """The tables of the networks, by name."""
        return self.content["models"]

    @property
    def methods(self) -> dict[str, dict[str, Any]]:
        """The tables of the methods, by name."""
        return self.content["methods"]

    def table(self, name: str, model: str, method: str) -> dict[str, Any]:
        """A shared table as it is for one cell."""
        result: dict[str, Any] = {}
        for source in (self.content, self.models[model], self.methods[method]):
            result = laid_over(result, source.get(name, {}))
        return result

    def as_toml(self, made: Mapping[str, Any]) -> str:
        """The grid at its scale, complete, with how it was made."""
        return tomli_w.dumps(self.content | {"made": dict(made)})


def names() -> list[str]:
    """The paper's experiments."""
    return sorted(entry.name.removesuffix(".toml") for entry in GRIDS.iterdir() if entry.name.endswith(".toml"))


def read_grid(name: str, scale: str | None = None) -> Grid:
    """The paper's experiment of this name, or the user's own grid in this file, at a scale."""
    if name.endswith(".toml"):
        content = read_toml(Path(name))
    elif name in names():
        content = read_toml(Path(str(GRIDS / f"{name}.toml")))
    elif "." in name or "/" in name:
        raise UserError(f"{name} is no experiment of the paper and no .toml file")
    else:
        raise UnknownNameError("experiment", name, names())
    return checked(content, scale, name)


def checked(content: dict[str, Any], scale: str | None, source: str) -> Grid:
    """The grid of a file's content; what it does not say or says wrongly is an error that names the place."""
    _known("grid", content, source)
    scales = content.get("scales", {})
    scale = scale or content.get("made", {}).get("scale") or PAPER_SCALE
    for key, table in scales.items():
        _known("scale", table, f"{source} [scales.{key}]")
    if scale != PAPER_SCALE and scale not in scales and scale != content.get("made", {}).get("scale"):
        raise UnknownNameError(f"scale of {source}", scale, [PAPER_SCALE, *scales])
    at_scale = {key: value for key, value in content.items() if key not in ("scales", "made")}
    own = dict(scales.get(scale, {}))
    if "base" in own:
        base = read_shared(str(own.pop("base")), content)
        _known("scale", base, f"the scale that {source} [scales.{scale}] is based on")
        at_scale = laid_over(at_scale, base)
    at_scale = laid_over(at_scale, own)
    for kind in ("models", "methods"):
        tables = at_scale.get(kind)
        if not isinstance(tables, dict) or not tables or not all(isinstance(table, dict) for table in tables.values()):
            raise UserError(f"{source}: a grid needs tables [{kind}.NAME]")
        for key, table in tables.items():
            _known(kind[:-1], table, f"{source} [{kind}.{key}]")
    _check_tables(at_scale, source)
    for key, table in at_scale["methods"].items():
        _check_method(key, table, at_scale, source)
    name = str(content.get("name") or Path(source).stem)
    return Grid(name, str(content.get("title", name)), scale, at_scale, content.get("made", {}).get("files", {}))


def _known(kind: str, table: Mapping[str, Any], place: str, more: tuple[str, ...] = ()) -> None:
    if not isinstance(table, Mapping):
        raise UserError(f"{place} must be a table")
    for key in table:
        if key not in (*KEYS[kind], *more):
            if kind == "method":
                _check_part(key, place)
            raise UnknownNameError(f"key of {place}", key, [*KEYS[kind], *more])


def _check_tables(content: dict[str, Any], source: str) -> None:
    """The keys of every shared table, wherever it stands; values are checked when the cells are made."""
    places = {source: content}
    places |= {f"{source} [models.{name}]": table for name, table in content["models"].items()}
    places |= {f"{source} [methods.{name}]": table for name, table in content["methods"].items()}
    verifier = content.get("verification", {}).get("verifier", "branch_and_bound")
    of_verifier = tuple(entry.name for entry in settings_of(choose("verifier", verifier, verifiers.available())))
    make(TuningBudget, content.get("tuning", {}))
    for place, holder in places.items():
        _known("evaluation", holder.get("evaluation", {}), f"{place} [evaluation]")
        _known("resources", holder.get("resources", {}), f"{place} [resources]")
        for kind in KINDS:
            _known("demand", holder.get("resources", {}).get(kind, {}), f"{place} [resources.{kind}]")
        _known("verification", holder.get("verification", {}), f"{place} [verification]", of_verifier)
        _check_training(holder.get("training", {}), f"{place} [training]")
        for part, table in holder.get("parts", {}).items():
            make(choose(f"method in {place} [parts]", part, objectives.available()), table)


def _check_part(key: str, place: str) -> None:
    """Where a setting of a method's part belongs."""
    parts = [name for name, part in objectives.available().items() if key in [one.name for one in settings_of(part)]]
    if parts:
        raise UserError(f"{place}: {key} is a setting of a part of a method: parts.{parts[0]}.{key} = …")


def _check_training(table: Mapping[str, Any], place: str) -> None:
    known = [entry.name for entry in settings_of(TrainingSettings) if entry.name not in ELSEWHERE]
    for key in table:
        if key in ELSEWHERE:
            raise UserError(f"{place}: {ELSEWHERE[key]}")
        if key not in known:
            _check_part(key, place)
            raise UnknownNameError(f"key of {place}", key, known)


def _check_method(name: str, table: dict[str, Any], content: dict[str, Any], source: str) -> None:
    place = f"{source} [methods.{name}]"
    for key in ("init", "against"):
        if key in table:
            choose(f"method as {key} of {place}", table[key], content["methods"])
    if "init" in table and "init" in content["methods"][table["init"]]:
        raise UserError(f"{place}: it starts from {table['init']}, which itself starts from another")
    if "drop" in table and "init" not in table:
        raise UserError(f"{place}: drop is a loss of accuracy against the method that init names")
    if "drop" in table and not (isinstance(table["drop"], list) and len(table["drop"]) == 2):
        raise UserError(f"{place}: drop is two numbers, the least and the most: [1, 2]")
