"""The settings of a training: from flags or a TOML file, checked, completed and written down."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from steadynet import objectives
from steadynet.errors import UnknownNameError, UserError
from steadynet.plugins import describe_type, fits, make, setting, settings_of
from steadynet.training.schedules import radius_share

RECIPE = ("lr", "schedule", "drops", "hold", "warmup", "ramp", "gradient_clip", "initialisation")


class Phase(NamedTuple):
    """Some epochs of one method."""

    method: str
    epochs: int


@dataclass(frozen=True)
class TrainingSettings:
    """Everything a training depends on, but for the settings of its methods, which ``methods`` holds by name."""

    data: str = setting("digits", "a data set's name, or the path of your own .npz file")
    model: str = setting("M1", "M1, M2, M3, C1, C2, C3, or file.py:factory")
    method: str = setting("nbc", "a training method; + joins a regulariser: trades+nbc")
    eps: float = setting(0.3, "the radius trained for, in pixels of [0, 1]; fractions such as 8/255 are fine")
    epochs: int = setting(20, "passes over the training data")
    phases: str | None = setting(None, "instead of method and epochs: 'rs:200 rs+nbc:200'")
    batch_size: int = setting(128, "images a step")
    lr: float | None = setting(
        None, "learning rate of Adam; unless given, the method's own, else 1e-4, or 1e-5 on CIFAR-10"
    )
    schedule: Literal["constant", "one-cycle", "drops"] | None = setting(
        None, "how the learning rate moves: constant unless given, drops for certified methods"
    )
    drops: tuple[float, ...] | None = setting(
        None, "shares of the training after each of which schedule 'drops' leaves a fifth of the rate"
    )
    hold: float | None = setting(None, "epochs at ε = 0, before it rises; a 70th of all for certified methods")
    warmup: float | None = setting(
        None,
        "epochs over which ε rises from 0; 0 unless given, half for rs, 20/70 (CIFAR-10: half) for certified methods",
    )
    ramp: Literal["linear", "smooth"] | None = setting(
        None, "how ε rises: linear unless given, smooth (t⁴ for a quarter, then linear) for certified methods"
    )
    gradient_clip: float | None = setting(
        None, "largest norm of the gradient, 0 for no limit; 10 for certified methods"
    )
    initialisation: Literal["default", "ibp"] | None = setting(
        None, "first weights: PyTorch's, or those that keep intervals from growing, for certified methods"
    )
    validation: float = setting(0.1, "share of the training images held out")
    train_images: int | None = setting(None, "train on the first N of the others only")
    normalise: bool = setting(False, "normalise by the training images' statistics, as the network's first layer")
    seed: int = setting(0, "seed of weights, order, attacks and the validation split")
    init: str | None = setting(None, "start from the weights of this run")
    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "where to train")
    threads: int | None = setting(None, "CPU threads; all cores unless given")
    amp: bool = setting(False, "mixed precision (bfloat16) on CUDA")
    tensorboard: bool = setting(False, "also write TensorBoard events (pip install steadynet[tensorboard])")
    methods: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, good, wanted in (
            ("eps", 0 < self.eps <= 1, "must be larger than 0 and at most 1"),
            ("epochs", self.epochs >= 1, "must be 1 or more"),
            ("batch_size", self.batch_size >= 1, "must be 1 or more"),
            ("lr", self.lr is None or 0 < self.lr <= 1e30, "must be larger than 0 (and a number)"),
            ("drops", all(0 < drop < 1 for drop in self.drops or ()), "must be shares between 0 and 1"),
            ("hold", self.hold is None or 0 <= self.hold < math.inf, "must be 0 or more"),
            ("warmup", self.warmup is None or 0 <= self.warmup < math.inf, "must be 0 or more"),
            ("gradient_clip", self.gradient_clip is None or self.gradient_clip >= 0, "must be 0 or more"),
            ("validation", 0 <= self.validation < 1, "must be a share between 0 and 1"),
            ("train_images", self.train_images is None or self.train_images >= 1, "must be 1 or more"),
            ("seed", 0 <= self.seed < 2**32, "must be 0 or more, and less than 2^32"),
            ("threads", self.threads is None or self.threads >= 1, "must be 1 or more"),
        ):
            if not good:
                raise UserError(f"{name} = {getattr(self, name)} {wanted}")

    @property
    def plan(self) -> list[Phase]:
        """The phases, in order."""
        return parse_phases(self.phases) if self.phases is not None else [Phase(self.method, self.epochs)]

    @property
    def total_epochs(self) -> int:
        """The epochs of all phases."""
        return sum(phase.epochs for phase in self.plan)

    @property
    def learning_rate(self) -> float:
        """The rate given, else the paper's."""
        return self.lr if self.lr is not None else (1e-5 if self.data == "cifar10" else 1e-4)

    def radius_share(self, epochs_done: float) -> float:
        """How much of ε is trained for after so many epochs."""
        return radius_share(epochs_done, self.hold or 0.0, self.warmup or 0.0, self.ramp or "linear")

    def with_recipe(self) -> TrainingSettings:
        """What is not given, as the authors of the first phase's method do it; written down in epochs."""
        recipe = self._recipe()
        wanted = {
            **{name: getattr(recipe, name) for name in RECIPE if hasattr(recipe, name)},
            "lr": recipe.lr if recipe.lr is not None else self.learning_rate,
            "hold": round(recipe.hold_share * self.total_epochs, 3),
            "warmup": round(recipe.warmup_share * self.total_epochs, 3),
        }
        return dataclasses.replace(
            self, **{name: value for name, value in wanted.items() if getattr(self, name) is None}
        )

    def chosen_by_recipe(self) -> tuple[str, ...]:
        """The settings of the loop that the method has a recipe for; none for most methods."""
        return () if self._recipe() == objectives.Recipe() else RECIPE

    def _recipe(self) -> objectives.Recipe:
        main = objectives.parts_of(self.plan[0].method)[0]
        return objectives.available()[main].recipe(self.data, self.eps)

    def objective(self, method: str) -> objectives.Objective:
        """The objective of one phase, with the settings written down here."""
        return objectives.build(method, self.methods)

    def as_config(self) -> dict[str, Any]:
        """Every setting as the run's ``config.toml`` holds it; what is None is left out, as TOML has none."""
        values = dataclasses.asdict(self)
        if self.phases is not None:
            del values["method"], values["epochs"]  # the phases say both
        values["methods"] = {
            name: {key: value for key, value in part.items() if value is not None}
            for name, part in values["methods"].items()
        }
        return {key: value for key, value in values.items() if value is not None}


def parse_phases(text: str) -> list[Phase]:
    """Phases from their short form.

    >>> parse_phases("rs:200 rs+nbc:200")
    [Phase(method='rs', epochs=200), Phase(method='rs+nbc', epochs=200)]
    """
    phases = []
    for part in text.split():
        method, colon, epochs = part.rpartition(":")
        if not colon or not epochs.isdigit() or int(epochs) < 1:
            raise UserError(f"phase '{part}' is not METHOD:EPOCHS, as in 'rs:200 rs+nbc:200'")
        phases.append(Phase(method, int(epochs)))
    if not phases:
        raise UserError("phases is empty: write 'rs:200 rs+nbc:200', or leave it out")
    return phases


def parse_radius(text: str | float) -> float:
    """A radius as a number or a fraction.

    >>> parse_radius("8/255") == 8 / 255, parse_radius(0.3)
    (True, 0.3)
    """
    try:
        value = float(Fraction(text)) if isinstance(text, str) else float(text)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise UserError(f"eps = {text}: a radius is a number such as 0.3, or a fraction such as 8/255") from error
    if not value > 0:
        raise UserError(f"eps = {text} must be larger than 0")
    if value > 1:
        raise UserError(f"eps = {text} is too large: pixels lie in [0, 1], so that 8 grey levels are 8/255")
    return value


def merge(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file under those of the command line, which win.

    >>> merge({"phases": "rs:9", "seed": 1, "methods": {"rs": {"steps": 5}}}, {"method": "rs", "steps": 7})
    {'seed': 1, 'methods': {'rs': {}}, 'method': 'rs', 'steps': 7}
    """
    replaced = {"phases"} if "method" in flags else {"method", "epochs"} if "phases" in flags else set()
    result = {key: value for key, value in file.items() if key not in replaced} | dict(flags)
    if "methods" in file:
        used = _parts(_plan(result)) if replaced else file["methods"]
        result["methods"] = {
            part: {key: value for key, value in table.items() if key not in flags}
            for part, table in _tables(file["methods"]).items()
            if part in used
        }
    return result


def _plan(values: Mapping[str, Any]) -> list[Phase]:
    return TrainingSettings(**{key: values[key] for key in ("method", "phases") if key in values}).plan


def _parts(plan: list[Phase]) -> list[str]:
    return list(dict.fromkeys(part for phase in plan for part in objectives.parts_of(phase.method)))


def _tables(methods: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(methods, dict) or not all(isinstance(table, dict) for table in methods.values()):
        raise UserError("methods holds a table for each method: [methods.nbc]")
    return methods


def resolve(values: Mapping[str, Any]) -> TrainingSettings:
    """Settings from keys, as a TOML file or flags give them; an unknown key is an error that names the nearest.

    A method's setting may stand by itself (``beta = 2``: for every part of the method that has it) or in the table of
    one part (``[methods.nbc]``). What is not given is what the method's authors published, else its default.
    """
    values = {key: value for key, value in values.items() if key != "input"}  # what the data decided, in a run's own
    own = {entry.name: entry for entry in settings_of(TrainingSettings)}
    tables = _tables(values.pop("methods", {}))
    if values.get("phases") is not None and not values.keys().isdisjoint({"method", "epochs"}):
        raise UserError("phases says each method and its epochs: give phases, or method and epochs")
    if "eps" in values:
        values["eps"] = parse_radius(values["eps"])
    general = {key: values.pop(key) for key in list(values) if key in own}
    for key, value in general.items():
        if not fits(value, own[key].type):
            raise UserError(f"{key} = {value!r} does not fit {describe_type(own[key].type)}")
    if isinstance(general.get("drops"), list):
        general["drops"] = tuple(general["drops"])
    settings = TrainingSettings(**general)
    methods = _method_settings(settings, values, tables)
    return dataclasses.replace(settings.with_recipe(), methods=methods)


def _method_settings(
    settings: TrainingSettings, flat: Mapping[str, Any], tables: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    parts = _parts(settings.plan)
    known = {name: {entry.name for entry in settings_of(plugin)} for name, plugin in objectives.available().items()}
    _check_names(settings, flat, tables, parts, known)
    result = {}
    for part in parts:
        plugin = objectives.available()[part]
        given = {key: value for key, value in flat.items() if key in known[part]} | dict(tables.get(part, {}))
        objective = make(plugin, plugin.published(settings.data, settings.eps) | given)
        result[part] = {entry.name: getattr(objective, entry.name) for entry in settings_of(plugin)}
    return result


def _check_names(
    settings: TrainingSettings,
    flat: Mapping[str, Any],
    tables: Mapping[str, Any],
    parts: list[str],
    known: Mapping[str, set[str]],
) -> None:
    for name in tables:
        if name not in parts:
            raise UnknownNameError("part of the method in [methods]", name, parts)
    usable = set().union(*(known[part] for part in parts))
    for key in flat:
        if key in usable:
            continue
        owners = sorted(name for name, keys in known.items() if key in keys)
        if owners:
            used = " ".join(phase.method for phase in settings.plan)
            raise UserError(f"{key} is a setting of {', '.join(owners)}, which method '{used}' does not use")
        general = {entry.name for entry in settings_of(TrainingSettings)}
        raise UnknownNameError("setting", key, general | usable)
