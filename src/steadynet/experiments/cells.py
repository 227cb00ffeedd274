"""The cells of a grid: a network, a method and a seed each, with all its settings and the name of its run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from steadynet import data as data_sets
from steadynet import networks, objectives
from steadynet.data import Dataset
from steadynet.errors import UnknownNameError, UserError
from steadynet.experiments.directory import run_path
from steadynet.experiments.grid import KINDS, Grid
from steadynet.experiments.shards import VerificationPlan
from steadynet.experiments.tuning import AccuracyWindow, TuningBudget
from steadynet.files import disk_errors
from steadynet.plugins import fits
from steadynet.training.notation import parse_phases, parse_radius
from steadynet.training.settings import resolve
from steadynet.verification.verify import make_verifier

MACHINE = ("device", "threads", "tensorboard")  # settings that say where and how to watch, not what is trained
SHARD = 20  # properties
RELATIVE = "a path in a grid is relative to the folder you are in"


@dataclass(frozen=True)
class Cell:
    """One network trained by one method, and what is asked of it."""

    model: str
    method: str
    seed: int
    key: str  # of the run: readable, then a hash of the whole configuration
    settings: dict[str, Any]  # of the training; ``init`` is a path relative to the experiment's directory
    verification: dict[str, Any]
    evaluation: dict[str, Any]
    window: AccuracyWindow | None
    budget: TuningBudget | None
    init: Cell | None
    against: str | None
    resources: dict[str, Any]
    files: dict[str, str]  # the user's own that it is made from, each with a hash of what it holds

    @property
    def run(self) -> str:
        """The run directory, relative to the experiment's."""
        return run_path(self.key)

    @property
    def data(self) -> str:
        """The data set it is trained and tested on."""
        return self.settings["data"]

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii it is verified at."""
        return tuple(parse_radius(eps) for eps in _list(self.verification.get("eps", self.settings["eps"])))

    def verification_plan(self, index: Sequence[int]) -> VerificationPlan:
        """The properties of these test images."""
        table = self.verification
        settings = {key: value for key, value in table.items() if key not in _VERIFICATION}
        shard = int(table.get("shard", SHARD))
        verifier = table.get("verifier", "branch_and_bound")
        return VerificationPlan(self.data, tuple(index), self.radii, verifier, settings, shard)

    def test_images(self, dataset: Dataset) -> list[int]:
        """The test images asked about: the first of each class, taking turns, the same for every method."""
        chosen = dataset.test.first_of_each_class(self.verification.get("per_class", 10), dataset.class_count)
        return chosen[: self.verification.get("tasks", len(chosen))].tolist()

    def demand(self, kind: str) -> dict[str, Any]:
        """The CPUs and GPUs that a task of this kind asks for."""
        table = self.resources | self.resources.get(kind, {})
        return {"cpus": table.get("cpus", 1), "gpus": table.get("gpus", 0)}

    @property
    def pgd_steps(self) -> list[int]:
        """Steps of each attack."""
        return _list(self.evaluation.get("pgd_steps", 100))


_VERIFICATION = ("eps", "per_class", "tasks", "verifier", "shard")
_COUNTS = {"verification": ("per_class", "tasks", "shard"), "evaluation": ("images",)}


Only = Mapping[str, Sequence[str]]


def cells_of(grid: Grid, seeds: Sequence[int], only: Only | None = None) -> list[Cell]:
    """Every cell, by model, method and seed; ``only`` picks some: ``{"model": ["M1"], "method": ["rs", "nbc"]}``."""
    only = only or {}
    known: dict[str, list[str]] = {
        "model": list(grid.models),
        "method": list(grid.methods),
        "seed": [str(seed) for seed in seeds],
    }
    for kind, wanted in only.items():
        if kind not in known:
            raise UnknownNameError("kind of cell", kind, known)
        for name in wanted:
            if name not in known[kind]:
                raise UnknownNameError(kind, name, known[kind])
    kept = {kind: [name for name in all_of if name in only.get(kind, all_of)] for kind, all_of in known.items()}
    return [
        _cell(grid, model, method, int(seed))
        for model in kept["model"]
        for method in kept["method"]
        for seed in kept["seed"]
    ]


def _cell(grid: Grid, model: str, method: str, seed: int) -> Cell:
    place = f"{grid.name}, {model} by {method}"
    table = grid.methods[method]
    init = _cell(grid, model, table["init"], seed) if "init" in table else None
    try:
        settings = _settings(grid, model, method, seed)
        config = resolve(settings).as_config()
        files = _files(config, grid.files)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    tables = {name: grid.table(name, model, method) for name in ("verification", "evaluation", "resources")}
    _check_counts(tables, place)
    whole: dict[str, Any] = {key: value for key, value in config.items() if key not in MACHINE}
    if files:
        whole["files"] = files
    window, budget = None, None
    if init:
        whole["init"] = init.key
        settings["init"] = init.run
    if "drop" in table:
        window, budget = AccuracyWindow(*table["drop"]), TuningBudget(**grid.content.get("tuning", {}))
        whole |= {"drop": table["drop"], "tuning": dataclasses.asdict(budget)}
    cell = Cell(
        model=model,
        method=method,
        seed=seed,
        key=_key(f"{model}-{method}-seed-{seed}", whole),
        settings=settings,
        verification=tables["verification"],
        evaluation=tables["evaluation"],
        window=window,
        budget=budget,
        init=init,
        against=table.get("against"),
        resources=tables["resources"],
        files=files,
    )
    try:
        plan = cell.verification_plan([])
        make_verifier(plan.verifier, plan.verifier_settings)
        if not cell.radii:
            raise UserError("eps = [] in [verification] names no radius")
        _check_demands(cell)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    return cell


def _settings(grid: Grid, model: str, method: str, seed: int) -> dict[str, Any]:
    """The settings of a cell's training, as ``resolve`` takes them; parts that a method does not use are left out."""
    settings = grid.table("training", model, method)
    shares = str(grid.methods[method].get("phases", method))
    epochs = settings.pop("epochs", 20)
    if not fits(epochs, int) or epochs < 1:
        raise UserError(f"epochs = {epochs!r} must be a whole number above 0")
    phases = _phases(shares, epochs)
    used = {part for phase in parse_phases(phases) for part in objectives.parts_of(phase.method)}
    parts = {name: table for name, table in grid.table("parts", model, method).items() if name in used}
    network = grid.models[model].get("network", model)
    return settings | {"model": network, "phases": phases, "seed": seed, "methods": parts}


def _phases(shares: str, epochs: int) -> str:
    """Phases of so many epochs together, from the share each has; a method alone has all.

    >>> _phases("rs:1/2 rs+nbc:1/2", 400), _phases("nbc", 20)
    ('rs:200 rs+nbc:200', 'nbc:20')
    """
    parts = [part.rpartition(":") for part in shares.split()]
    if len(parts) == 1 and not parts[0][1]:
        return f"{parts[0][2]}:{epochs}"
    try:
        wanted = [Fraction(share) for _, _, share in parts]
    except (ValueError, ZeroDivisionError) as error:
        raise UserError(f"phases = '{shares}' are not METHOD:SHARE, as in 'rs:1/2 rs+nbc:1/2'") from error
    if sum(wanted) != 1:
        raise UserError(f"the shares in phases = '{shares}' add up to {sum(wanted)}, not to 1")
    counts = [max(1, round(epochs * share)) for share in wanted]
    return " ".join(f"{method}:{count}" for (method, _, _), count in zip(parts, counts, strict=True))


def _key(prefix: str, whole: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:10]
    return f"{re.sub(r'[^A-Za-z0-9+@.]+', '-', prefix)}-{digest}"


def _files(config: Mapping[str, Any], recorded: Mapping[str, str]) -> dict[str, str]:
    """What the user's own files hold, by their paths: with other contents, a run is another one."""
    own = networks.custom_source(config["model"])
    if own and not own[0].is_file() and str(own[0]) not in recorded:
        raise UserError(f"there is no file {own[0]} ({RELATIVE})")
    paths = [own[0] if own else None, data_sets.own_file(config["data"])]
    there = {str(path): path for path in paths if path and (path.is_file() or str(path) in recorded)}
    return {name: recorded.get(name) or _digest(path, path.stat().st_mtime_ns) for name, path in there.items()}


@lru_cache
def _digest(path: Path, changed: int) -> str:
    with disk_errors(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _check_demands(cell: Cell) -> None:
    for kind in KINDS:
        cpus, gpus = cell.demand(kind).values()
        if not fits(cpus, int) or cpus < 1:
            raise UserError(f"cpus = {cpus!r} in [resources] must be a whole number above 0")
        if not fits(gpus, float) or gpus < 0 or (gpus > 1 and gpus % 1):
            raise UserError(f"gpus = {gpus!r} in [resources] must be a whole number, or a share of one GPU")


def _check_counts(tables: Mapping[str, Mapping[str, Any]], place: str) -> None:
    for table, keys in _COUNTS.items():
        for key in keys:
            value = tables[table].get(key, 1)
            if not fits(value, int) or value < 1:
                raise UserError(f"{place}: {key} = {value!r} in [{table}] must be a whole number above 0")
    for steps in _list(tables["evaluation"].get("pgd_steps", 100)):
        if not fits(steps, int) or steps < 1:
            raise UserError(f"{place}: pgd_steps = {steps!r} must be whole numbers above 0")


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
