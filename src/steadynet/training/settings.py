"""The settings of a training: checked, completed from what the method's authors published, and written down."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from steadynet import objectives
from steadynet.errors import UnknownNameError, UserError
from steadynet.objectives.l1 import L1Penalty
from steadynet.plugins import fits, make, requirement, setting, settings_of
from steadynet.training.given_settings import GivenSettings, Table
from steadynet.training.notation import Phase, parse_phases, parse_radius
from steadynet.training.recipes import recipe_that_works
from steadynet.training.schedules import radius_share

# The settings that a method's recipe chooses unless the user does.
RECIPE = ("lr", "schedule", "drops", "hold", "warmup", "ramp", "gradient_clip", "initialisation", "batch_norm")


@dataclass(frozen=True)
class TrainingSettings:
    """Everything that a training depends on.

    :func:`resolve` makes one from what a user gives. Each field carries the line of help that ``--help`` shows.

    Attributes:
        methods: The settings of each part of the training methods: ``{"nbc": {"beta": 1.0, ...}}``.
        sources: The folder in which a run keeps copies of the user's own files of methods. It is not written down.
    """

    data: str = setting("digits", "a data set's name, or the path of your own .npz file")
    model: str = setting("M1", "M1, M2, M3, C1, C2, C3, file.py:factory, or an ONNX file")
    method: str = setting("nbc", "the training method, or file.py:Class; + joins a regulariser, as in trades+nbc")
    eps: float = setting(0.3, "the radius ε to train for, in pixel values from 0 to 1; may be a fraction such as 8/255")
    epochs: int = setting(20, "passes over the training data")
    phases: str | None = setting(None, "several methods in turn, instead of method and epochs: 'rs:200 rs+nbc:200'")
    batch_size: int = setting(128, "images per step")
    recipe: Literal["auto", "paper"] = setting(
        "auto",
        "how to choose lr, schedule and warmup if you do not: auto suits the data set, the method and the number of "
        "epochs; paper is what the paper does, lr 1e-4 throughout, 1e-5 on CIFAR-10",
    )
    lr: float | None = setting(
        None,
        "learning rate of Adam (default: what the recipe says; if you give it, the recipe is the paper's)",
    )
    schedule: Literal["constant", "one-cycle", "drops"] | None = setting(
        None,
        "how the learning rate changes (default: what the recipe says; constant if you give lr; certified methods: "
        "drops as published, or one-cycle for fewer than 35 epochs, 80 on CIFAR-10)",
    )
    drops: tuple[float, ...] | None = setting(
        None, "for schedule 'drops': after each of these shares of the training, the learning rate falls to a fifth"
    )
    hold: float | None = setting(
        None,
        "epochs at ε = 0 before it rises (default: 0; 1/70 of all epochs for certified methods, 1/160 on CIFAR-10)",
    )
    warmup: float | None = setting(
        None,
        "epochs over which ε rises from 0 (default: what the recipe says; if you give lr: 0, half for rs, 20/70 for "
        "certified methods, half on CIFAR-10)",
    )
    ramp: Literal["linear", "smooth"] | None = setting(
        None,
        "how ε rises; smooth: t⁴ for a quarter, then linear (default: linear; smooth for certified methods)",
    )
    gradient_clip: float | None = setting(
        None, "largest norm of the gradient; 0 means no limit (default: 0; 10 for certified methods)"
    )
    l1_weight: float | None = setting(
        None,
        "w_l1, the weight of the L1 norm of the weights, for any method "
        "(default: 2e-5 for rs, that of their authors for certified methods, otherwise 0)",
    )
    initialisation: Literal["default", "ibp", "auto"] | None = setting(
        None,
        "initial weights: PyTorch's (default), those for narrow interval bounds (ibp), or ibp if the network has batch "
        "norm or few layers, otherwise PyTorch's (auto) (default: auto for certified methods, otherwise PyTorch's)",
    )
    batch_norm: Literal["running", "precise"] | None = setting(
        None,
        "statistics of batch norm after each epoch: running averages, or precise ones over all training images "
        "(default: running; precise for certified methods with an attack)",
    )
    validation: float = setting(0.1, "share of the training images that is held out for validation")
    train_images: int | None = setting(None, "train only on the first N of the remaining images")
    normalise: bool = setting(
        False, "make the network's first layer normalise pixels by the statistics of the training images"
    )
    seed: int = setting(0, "seed of the initial weights, the order of images, attacks and the validation split")
    init: str | None = setting(None, "start from the weights of this run, or from this ONNX network")
    keep_zeros: bool = setting(False, "weights that are zero at the start stay zero: to fine-tune a pruned network")
    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "where to train")
    threads: int | None = setting(None, "number of CPU threads (default: all cores)")
    amp: bool = setting(False, "mixed precision (bfloat16) on CUDA")
    tensorboard: bool = setting(False, "also write TensorBoard events (pip install steadynet[tensorboard])")
    methods: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    sources: Path | None = dataclasses.field(default=None, compare=False)

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
            ("l1_weight", self.l1_weight is None or 0 <= self.l1_weight < math.inf, "must be 0 or more"),
            ("validation", 0 <= self.validation < 1, "must be a share between 0 and 1"),
            ("train_images", self.train_images is None or self.train_images >= 1, "must be 1 or more"),
            ("seed", 0 <= self.seed < 2**32, "must be 0 or more, and less than 2^32"),
            ("threads", self.threads is None or self.threads >= 1, "must be 1 or more"),
        ):
            if not good:
                raise UserError(f"{name} = {getattr(self, name)} {wanted}")

    @property
    def plan(self) -> list[Phase]:
        """The phases of the training, in order."""
        return parse_phases(self.phases) if self.phases is not None else [Phase(self.method, self.epochs)]

    @property
    def total_epochs(self) -> int:
        """The number of epochs of all phases."""
        return sum(phase.epochs for phase in self.plan)

    @property
    def learning_rate(self) -> float:
        """The learning rate: the one given or chosen, otherwise the paper's."""
        return self.lr if self.lr is not None else (1e-5 if self.data == "cifar10" else 1e-4)

    def radius_share(self, epochs_done: float) -> float:
        """Return the share of ε that is trained for after this many epochs, which need not be whole."""
        return radius_share(epochs_done, self.hold or 0.0, self.warmup or 0.0, self.ramp or "linear")

    def with_recipe(self) -> TrainingSettings:
        """Return these settings with every missing one chosen by the recipe of the first phase's method.

        Recipes give ``hold`` and ``warmup`` as shares of the training. Here they become numbers of epochs.
        """
        recipe = self._recipe()
        schedule = self.schedule or recipe.schedule_for(self.total_epochs)
        lr = recipe.lr_for(schedule)
        wanted = {
            **{name: getattr(recipe, name) for name in RECIPE if hasattr(recipe, name)},
            "schedule": schedule,
            "lr": lr if lr is not None else self.learning_rate,
            "hold": round(recipe.hold_share * self.total_epochs, 3),
            "warmup": round(recipe.warmup_share * self.total_epochs, 3),
        }
        return dataclasses.replace(
            self, **{name: value for name, value in wanted.items() if getattr(self, name) is None}
        )

    def chosen_by_recipe(self) -> tuple[str, ...]:
        """Return the names of the settings that the method's recipe chooses; most methods have no recipe."""
        return () if self._recipe() == objectives.Recipe() else RECIPE

    def _recipe(self) -> objectives.Recipe:
        main = objectives.parts_of(self.plan[0].method, self.sources)[0]
        method = objectives.named(main, self.sources)
        published = method.recipe(self.data, self.eps)
        if self.recipe == "paper" or self.lr is not None or self.schedule not in (None, "one-cycle"):
            return published
        return recipe_that_works(
            published, method, self.total_epochs, data=self.data, model=self.model, is_fine_tuning=self.init is not None
        )

    def objective(self, method: str) -> objectives.Objective:
        """Build the objective of one phase, with an L1 term if the settings ask for one and the method has none."""
        objective = objectives.build(method, self.methods, self.sources)
        if not self.l1_weight or _has_l1_weight(method, self.sources):
            return objective
        parts = objective.parts if isinstance(objective, objectives.Combination) else (objective,)
        return objectives.Combination(parts=(*parts, L1Penalty(weight=self.l1_weight)))

    def as_config(self) -> dict[str, Any]:
        """Return the settings as ``config.toml`` holds them. Those that are None are left out: TOML has no None."""
        values = dataclasses.asdict(self)
        del values["sources"], values["recipe"]  # the settings hold what the recipe chose
        if self.phases is not None:
            del values["method"], values["epochs"]  # the phases say both
        values["methods"] = {
            name: {key: value for key, value in part.items() if value is not None}
            for name, part in values["methods"].items()
        }
        if not self.keep_zeros:
            del values["keep_zeros"]  # so that runs of earlier versions have the same settings
        return {key: value for key, value in values.items() if value is not None}


def resolve(values: Table | GivenSettings, sources: Path | None = None) -> TrainingSettings:
    """Check the settings that a user gives, and complete them.

    A setting that is not given is what the method's authors published for the data set and the radius, otherwise its
    default.

    Args:
        values: Settings by name, with the same names as the flags of ``steadynet train`` and the keys of its
            configuration file. A setting of a method may stand by itself (``"beta": 2.0``, for every part of the method
            that has it) or in the table of one part (``"methods": {"nbc": {"beta": 2.0}}``).
        sources: The folder in which a run keeps copies of the user's own files of methods, to resume it.

    Returns:
        The complete settings, for :func:`~steadynet.training.loop.train`.

    Raises:
        UserError: A name is unknown (the message says which one is nearest), or a value does not fit.

    >>> settings = resolve({"method": "trades+nbc", "eps": "8/255", "beta": 2.0})
    >>> round(settings.eps, 4), settings.lr, settings.methods["nbc"]["beta"]
    (0.0314, 0.004, 2.0)
    """
    given = values if isinstance(values, GivenSettings) else GivenSettings.parse(values)
    if given.values.get("phases") is not None and not given.values.keys().isdisjoint({"method", "epochs"}):
        raise UserError("phases says each method and its epochs: give phases, or method and epochs")
    known = {entry.name: entry for entry in settings_of(TrainingSettings)}
    general = {name: value for name, value in given.values.items() if name in known}
    if "eps" in general:
        general["eps"] = parse_radius(general["eps"])
    for name, value in general.items():
        if not fits(value, known[name].type):
            raise UserError(f"{name} = {value!r} {requirement(known[name].type)}")
    if isinstance(general.get("drops"), list):
        general["drops"] = tuple(general["drops"])
    settings = TrainingSettings(**general, sources=sources)
    of_methods = {name: value for name, value in given.values.items() if name not in known}
    if settings.l1_weight is not None and any(_has_l1_weight(phase.method, sources) for phase in settings.plan):
        of_methods["l1_weight"] = settings.l1_weight  # the methods that have an L1 term of their own take this weight
    methods = _method_settings(settings, of_methods, given.methods)
    return dataclasses.replace(settings.with_recipe(), methods=methods)


def _has_l1_weight(method: str, sources: Path | None) -> bool:
    """Whether a method has an L1 term of its own, as ``rs`` and the certified methods have."""
    parts = [objectives.named(part, sources) for part in objectives.parts_of(method, sources)]
    return any(entry.name == "l1_weight" for part in parts for entry in settings_of(part))


def _method_settings(settings: TrainingSettings, flat: Table, tables: Mapping[str, Table]) -> dict[str, dict[str, Any]]:
    """Return the complete settings of each part of the methods.

    Args:
        settings: The settings of the training, with its methods, data set and radius.
        flat: Settings for every part that has them.
        tables: Settings of single parts, which override ``flat``.
    """
    names = [part for phase in settings.plan for part in objectives.parts_of(phase.method, settings.sources)]
    parts = {name: objectives.named(name, settings.sources) for name in names}
    known = {
        name: {entry.name for entry in settings_of(plugin)} for name, plugin in (objectives.available() | parts).items()
    }
    objectives.user_files(names)  # a run can keep a copy of each
    _check_names(settings, flat, tables, list(parts), known)
    result = {}
    for part, plugin in parts.items():
        given = {name: value for name, value in flat.items() if name in known[part]} | dict(tables.get(part, {}))
        objective = make(plugin, plugin.completed(given, settings.data, settings.eps))
        result[part] = {entry.name: getattr(objective, entry.name) for entry in settings_of(plugin)}
    return result


def _check_names(
    settings: TrainingSettings,
    flat: Table,
    tables: Mapping[str, Table],
    parts: list[str],
    known: Mapping[str, set[str]],
) -> None:
    """Raise a ``UserError`` if a setting or a table belongs to no part of the methods in use."""
    for name in tables:
        if name not in parts:
            raise UnknownNameError("part of the method in [methods]", name, parts)
    usable = set().union(*(known[part] for part in parts))
    for name in flat:
        if name in usable:
            continue
        owners = sorted(part for part, names in known.items() if name in names)
        if owners:
            used = " ".join(phase.method for phase in settings.plan)
            raise UserError(f"{name} is a setting of {', '.join(owners)}, which method '{used}' does not use")
        general = {entry.name for entry in settings_of(TrainingSettings)}
        raise UnknownNameError("setting", name, general | usable)
