"""The cells of a grid: one network, trained by one method with one seed, with all its settings."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from steadynet import data as data_sets
from steadynet import networks, objectives
from steadynet.data import Dataset
from steadynet.errors import UnknownNameError, UserError
from steadynet.experiments.directory import run_path
from steadynet.experiments.grid import Grid
from steadynet.experiments.grid_tables import (
    Demand,
    Evaluation,
    Resources,
    Values,
    Verification,
    read_resources,
    read_table,
    read_verification,
)
from steadynet.experiments.shards import VerificationPlan
from steadynet.experiments.tasks import Kind
from steadynet.experiments.tuning import TuningBudget
from steadynet.experiments.variants import Variant
from steadynet.files import disk_errors
from steadynet.plugins import fits, settings_of
from steadynet.training.notation import parse_phases, parse_radius
from steadynet.training.settings import TrainingSettings, resolve
from steadynet.verification import verifiers
from steadynet.verification.verifiers import make_verifier

MACHINE = ("device", "threads", "tensorboard")  # settings that say where to train, not what is trained
SEARCH = "search"  # the setting that runs of earlier versions do not have: they all have the search "paper"
RELATIVE = "a path in a grid is relative to the folder you are in"
Only = Mapping[str, Sequence[str]]  # names of models, methods and seeds to keep, by kind


@dataclass(frozen=True)
class Cell:
    """One network of a grid, how it is trained, and how it is evaluated and verified."""

    model: str
    variant: Variant
    seed: int
    key: str  # the name of its run: readable, followed by a hash of the whole configuration
    settings: Values  # of the training; ``init`` is a path relative to the experiment's directory
    verification: Verification
    evaluation: Evaluation
    resources: Resources
    budget: TuningBudget | None = None  # if the variant has an accuracy window
    init: Cell | None = None  # the cell whose network it starts from
    against: str | None = None  # the label of the variant that the table shows differences to
    files: Mapping[str, str] = field(default_factory=dict)  # hashes of the user's files that it depends on, by path

    @property
    def run(self) -> str:
        """The path of its run, relative to the experiment's directory."""
        return run_path(self.key)

    @property
    def data(self) -> str:
        """The data set that it is trained and tested on."""
        return self.settings["data"]

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii that it is verified at."""
        eps = self.settings.get("eps", TrainingSettings.eps) if self.verification.eps is None else self.verification.eps
        return tuple(parse_radius(radius) for radius in (eps if isinstance(eps, list | tuple) else [eps]))

    def verification_plan(self, index: Sequence[int]) -> VerificationPlan:
        """Return the properties of these test images."""
        table = self.verification
        settings = self._default_clock() | dict(table.settings)
        return VerificationPlan(self.data, tuple(index), self.radii, table.verifier, settings, table.shard)

    def _default_clock(self) -> dict[str, str]:
        """Count the processor's seconds, so that times mean the same beside other tasks; on a GPU they mean nothing."""
        known = settings_of(verifiers.named(self.verification.verifier))
        has_clock = any(entry.name == "clock" for entry in known)
        return {"clock": "cpu"} if has_clock and not self.resources.verify.gpus else {}

    def test_images(self, dataset: Dataset) -> list[int]:
        """Choose the test images: the first ones of each class, which are the same for every method."""
        chosen = dataset.test.first_of_each_class(self.verification.per_class, dataset.class_count)
        return chosen[: self.verification.properties].tolist()

    def demand(self, kind: Kind) -> Demand:
        """Return the CPUs and GPUs that a task of this kind asks for."""
        demands: dict[Kind, Demand] = {"evaluate": self.resources.evaluate, "verify": self.resources.verify}
        return demands.get(kind, self.resources.train)


def cells_of(grid: Grid, seeds: Sequence[int] | None = None, only: Only | None = None) -> list[Cell]:
    """Return the cells of a grid, ordered by model, method and seed.

    Args:
        grid: The grid.
        seeds: The seeds; None for those that the grid gives each model.
        only: Keep some cells only, such as ``{"model": ["M1"], "method": ["rs", "nbc"]}``. A method that the grid
            has in several variants stands for all of them.

    Raises:
        UserError: A name is unknown, or the settings of a cell are not valid.
    """
    kept = _chosen(grid, seeds, only or {})
    return [
        _cell(grid, model, method, seed)
        for model in kept["model"]
        for method in kept["method"]
        for seed in (grid.seeds_of(model) if seeds is None else seeds)
        if str(seed) in kept["seed"]
    ]


def _chosen(grid: Grid, seeds: Sequence[int] | None, only: Only) -> dict[str, list[str]]:
    every = sorted({seed for model in grid.models for seed in grid.seeds_of(model)}) if seeds is None else seeds
    known = {"model": list(grid.models), "method": list(grid.methods), "seed": [str(seed) for seed in every]}
    variants_of: dict[str, list[str]] = {}
    for label, variant in grid.variants.items():
        variants_of.setdefault(variant.method, []).append(label)
    for kind, names in only.items():
        if kind not in known:
            raise UnknownNameError("kind of cell", kind, known)
        wanted = set()
        for name in names:
            if name in known[kind]:
                wanted.add(name)
            elif kind == "method" and name in variants_of:
                wanted.update(variants_of[name])
            else:
                raise UnknownNameError(kind, name, known[kind])
        known[kind] = [name for name in known[kind] if name in wanted]
    return known


def _cell(grid: Grid, model: str, method: str, seed: int) -> Cell:
    place, table = f"{grid.name}, {model} by {method}", grid.methods[method]
    init = _cell(grid, model, table.init, seed) if table.init else None
    variant = grid.variants[method]
    try:
        settings = _settings(grid, model, method, seed)
        config = resolve(settings).as_config()
        files = _files(config, grid.files)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    whole: dict[str, Any] = {key: value for key, value in config.items() if key not in MACHINE}
    whole["methods"] = {part: _without_paper_search(values) for part, values in config["methods"].items()}
    if files:
        whole["files"] = files
    if init:
        whole["init"] = init.key
        settings["init"] = init.run
    budget = grid.tuning if variant.window else None
    if budget:
        whole |= {"drop": table.drop, "tuning": asdict(budget)}
    cell = Cell(
        model=model,
        variant=variant,
        seed=seed,
        key=_key(f"{model}-{method}-seed-{seed}", whole),
        settings=settings,
        verification=read_verification(grid.layered("verification", model, method), f"{place} [verification]"),
        evaluation=read_table(Evaluation, grid.layered("evaluation", model, method), f"{place} [evaluation]"),
        resources=read_resources(grid.layered("resources", model, method), place),
        budget=budget,
        init=init,
        against=table.against,
        files=files,
    )
    _check_verification(cell, place)
    return cell


def _without_paper_search(values: Values) -> dict[str, Any]:
    """Return a method's settings without the search of the paper, so that runs of earlier versions keep their names."""
    return {name: value for name, value in values.items() if (name, value) != (SEARCH, "paper")}


def _check_verification(cell: Cell, place: str) -> None:
    try:
        plan = cell.verification_plan([])
        make_verifier(plan.verifier, plan.verifier_settings)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error


def _settings(grid: Grid, model: str, method: str, seed: int) -> dict[str, Any]:
    """Return the settings of a cell's training, without those of parts that the method does not use."""
    settings = {"recipe": "paper"} | grid.layered("training", model, method)
    epochs = settings.pop("epochs", 20)
    if not fits(epochs, int) or epochs < 1:
        raise UserError(f"epochs = {epochs!r} must be a whole number above 0")
    phases = _phases(grid.methods[method].phases or method, epochs)
    used = {part for phase in parse_phases(phases) for part in objectives.parts_of(phase.method)}
    parts = {name: table for name, table in grid.layered("parts", model, method).items() if name in used}
    network = grid.models[model].network or model
    return settings | {"model": network, "phases": phases, "seed": seed, "methods": parts}


def _phases(shares: str, epochs: int) -> str:
    """Return phases that have so many epochs together, from the share of each. A method alone has all epochs.

    >>> _phases("rs:1/2 rs+nbc:1/2", 400), _phases("nbc", 20)
    ('rs:200 rs+nbc:200', 'nbc:20')
    """
    parts = [part.rpartition(":") for part in shares.split()]
    if len(parts) == 1 and (not parts[0][1] or parts[0][0].endswith(".py")):  # nbc, or mine.py:Smoothing
        return f"{shares.strip()}:{epochs}"
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
    """Return a hash of each file of the user that a run depends on: with other content, it is another run."""
    own = networks.custom_source(config["model"])
    sources = [own[0]] if own else []
    sources += objectives.user_files(phase.method for phase in parse_phases(config["phases"]))
    for path in sources:
        if not path.is_file() and str(path) not in recorded:
            raise UserError(f"there is no file {path} ({RELATIVE})")
    paths = [*sources, data_sets.own_file(config["data"])]
    there = {str(path): path for path in paths if path and (path.is_file() or str(path) in recorded)}
    return {name: recorded.get(name) or _digest(path, path.stat().st_mtime_ns) for name, path in there.items()}


@lru_cache
def _digest(path: Path, changed: int) -> str:
    with disk_errors(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()
