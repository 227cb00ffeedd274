"""The tables of a grid's TOML file as records. An unknown key or a wrong type is an error that names the place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from steadynet import objectives
from steadynet.errors import UnknownNameError, UserError
from steadynet.files import record_from
from steadynet.plugins import make, settings_of
from steadynet.training.settings import TrainingSettings
from steadynet.verification import verifiers

Values = Mapping[str, Any]  # settings by name, as the file gives them
Record = TypeVar("Record")
VERIFIER = "branch_and_bound"
ELSEWHERE = {
    "method": "a method of the grid is a table: [methods.nbc]",
    "phases": "phases belong to a method: [methods.nbc]",
    "methods": "the settings of a part of a method belong in [parts.nbc]",
    "seed": "seeds stand beside the tables of a grid or of a model: seeds = [0, 1, 2]; or they are given as --seeds",
    "init": "a method of the grid names the method it starts from: init = 'natural'",
    "model": "a model of the grid is a table: [models.M1]",
}


@dataclass(frozen=True)
class Tables:
    """The tables that a grid, its models, its methods and its scales may each have."""

    training: Values = field(default_factory=dict)
    parts: Mapping[str, Values] = field(default_factory=dict)  # settings of the parts of methods
    verification: Values = field(default_factory=dict)
    evaluation: Values = field(default_factory=dict)
    resources: Values = field(default_factory=dict)

    def check(self, place: str, verifier: str) -> None:
        """Check all keys and types; ``verifier`` says which settings [verification] may have.

        Raises:
            UserError: A key is unknown, or a value has another type.
        """
        _check_training(self.training, f"{place} [training]")
        for part, values in self.parts.items():
            make(objectives.named(part, kind=f"method in {place} [parts]"), values)
        read_verification(self.verification, f"{place} [verification]", verifier)
        read_table(Evaluation, self.evaluation, f"{place} [evaluation]")
        read_resources(self.resources, place)


@dataclass(frozen=True)
class ModelTable(Tables):
    """``[models.NAME]``. Several models may have the same network, for example with different radii."""

    network: str | None = None  # the name of the table unless given
    seeds: tuple[int, ...] | None = None  # those of the grid unless given
    methods: Mapping[str, Tables] = field(default_factory=dict)  # what counts for one method with this model only

    def __post_init__(self) -> None:
        _check_seeds(self.seeds)


@dataclass(frozen=True)
class MethodTable(Tables):
    """``[methods.NAME]``."""

    method: str | None = None  # what it is called in comparisons; its only phase, or the name of the table unless given
    phases: str | None = None  # METHOD:SHARE for each phase; the name of the table unless given
    init: str | None = None  # the method whose run it starts from
    against: str | None = None  # the method that the table shows differences to
    drop: Any = None  # the accuracy window [low, high] to tune to, or a list of several
    sweep: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)  # values by part and setting


@dataclass(frozen=True)
class ScaleTable(Tables):
    """``[scales.NAME]``: values that are laid over those of the grid."""

    base: str | None = None  # a shared scale
    seeds: tuple[int, ...] | None = None
    tuning: Values = field(default_factory=dict)
    models: Mapping[str, Values] = field(default_factory=dict)
    methods: Mapping[str, Values] = field(default_factory=dict)


@dataclass(frozen=True)
class GridTable(Tables):
    """The whole file."""

    name: str | None = None
    title: str | None = None
    seeds: tuple[int, ...] | None = None
    tuning: Values = field(default_factory=dict)
    models: Mapping[str, Values] = field(default_factory=dict)
    methods: Mapping[str, Values] = field(default_factory=dict)
    scales: Mapping[str, Values] = field(default_factory=dict)
    made: Values = field(default_factory=dict)  # how an experiment was made, in the grid that it wrote

    def __post_init__(self) -> None:
        _check_seeds(self.seeds)


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise UserError(f"{name} = {count} must be a whole number above 0")


def _check_seeds(seeds: tuple[int, ...] | None) -> None:
    if seeds is not None and (not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds)):
        raise UserError(f"seeds = {list(seeds)} must be different whole numbers, 0 or more")


@dataclass(frozen=True)
class Evaluation:
    """``[evaluation]``: the attacks, and how many test images are attacked (None for all)."""

    pgd_steps: int | tuple[int, ...] = 100
    images: int | None = None

    def __post_init__(self) -> None:
        _check_counts(images=self.images)
        for steps in self.attacks:
            _check_counts(pgd_steps=steps)

    @property
    def attacks(self) -> tuple[int, ...]:
        """The steps of each attack."""
        return (self.pgd_steps,) if isinstance(self.pgd_steps, int) else tuple(self.pgd_steps)


@dataclass(frozen=True)
class Verification:
    """``[verification]``: which properties are verified. The verifier's own settings stand beside these.

    ``eps`` holds the radii as they are written; None stands for the radius of the training.
    """

    eps: float | str | tuple[float | str, ...] | None = None
    per_class: int = 10  # test images
    properties: int | None = None  # at most, per radius
    verifier: str = VERIFIER
    shard: int = 20  # properties per task
    settings: Values = field(default_factory=dict)  # of the verifier

    def __post_init__(self) -> None:
        _check_counts(per_class=self.per_class, properties=self.properties, shard=self.shard)
        if isinstance(self.eps, tuple | list) and not self.eps:
            raise UserError("eps = [] names no radius")


@dataclass(frozen=True)
class Demand:
    """The CPUs and GPUs that a task asks for."""

    cpus: int = 1
    gpus: float = 0

    def __post_init__(self) -> None:
        _check_counts(cpus=self.cpus)
        if self.gpus < 0 or (self.gpus > 1 and self.gpus % 1):
            raise UserError(f"gpus = {self.gpus:g} must be a whole number, or a share of one GPU")


@dataclass(frozen=True)
class Resources:
    """``[resources]``: the demand of each kind of task."""

    train: Demand = Demand()
    evaluate: Demand = Demand()
    verify: Demand = Demand()


def read_table(kind: type[Record], table: object, place: str, other_keys: Iterable[str] = ()) -> Record:
    """Read a table of a TOML file into a record.

    Args:
        kind: The dataclass.
        table: The table.
        place: Where it stands, for error messages.
        other_keys: Further names to suggest if a key is unknown.

    Raises:
        UserError: A key is unknown (the message suggests the nearest), or a value has another type.
    """
    if not isinstance(table, Mapping):
        raise UserError(f"{place} must be a table")
    known = [entry.name for entry in fields(kind)]  # type: ignore[arg-type]  # every record is a dataclass
    for key in table:
        if key not in known:
            if kind is MethodTable:
                _suggest_part(key, place)
            raise UnknownNameError(f"key of {place}", key, [*known, *other_keys])
    try:
        return record_from(kind, dict(table))
    except (ValueError, UserError) as error:
        raise UserError(f"{place}: {error}") from error


def read_model(table: object, place: str) -> ModelTable:
    """Read a table [models.NAME], with the tables of methods that it may hold.

    Raises:
        UserError: A key is unknown (the message suggests the nearest), or a value has another type.
    """
    methods = table.get("methods", {}) if isinstance(table, Mapping) else {}
    for name, values in methods.items() if isinstance(methods, Mapping) else ():
        read_table(Tables, values, f"{place} [methods.{name}]")
    return read_table(ModelTable, table, place)


def read_verification(table: Values, place: str, verifier: str | None = None) -> Verification:
    """Read a table [verification], which holds the settings of the verifier, too.

    Raises:
        UserError: The verifier or a key is unknown, or a value has another type.
    """
    verifier = verifier or str(table.get("verifier", VERIFIER))
    known = [entry.name for entry in settings_of(verifiers.named(verifier))]
    own = {key: value for key, value in table.items() if key not in known}
    if "tasks" in own:  # what older grids call it
        own["properties"] = own.pop("tasks")
    if "settings" in own:
        raise UnknownNameError(f"key of {place}", "settings", [*known, *own])
    settings = {key: value for key, value in table.items() if key in known}
    return read_table(Verification, own | {"settings": settings}, place, known)


def read_resources(table: Values, place: str) -> Resources:
    """Read a table [resources]: a demand for all tasks, and one for each kind.

    Raises:
        UserError: A key is unknown, or a value is not possible.
    """
    kinds = [entry.name for entry in fields(Resources)]
    shared = {key: value for key, value in table.items() if key not in kinds}
    read_table(Demand, shared, f"{place} [resources]", kinds)
    demands = {}
    for kind in kinds:
        own = table.get(kind, {})
        read_table(Demand, own, f"{place} [resources.{kind}]")
        demands[kind] = read_table(Demand, shared | own, f"{place} [resources.{kind}]")
    return Resources(**demands)


def _check_training(table: Values, place: str) -> None:
    """Check the keys of [training]. Its values are checked when the settings of a cell are complete."""
    known = [entry.name for entry in settings_of(TrainingSettings) if entry.name not in ELSEWHERE]
    for key in table:
        if key in ELSEWHERE:
            raise UserError(f"{place}: {ELSEWHERE[key]}")
        if key not in known:
            _suggest_part(key, place)
            raise UnknownNameError(f"key of {place}", key, known)


def _suggest_part(key: str, place: str) -> None:
    """If the key is a setting of some method, raise an error that says where it belongs."""
    for name, part in objectives.available().items():
        if key in [entry.name for entry in settings_of(part)]:
            raise UserError(f"{place}: {key} is a setting of a part of a method: parts.{name}.{key} = …")
