"""What a run's ``config.toml`` holds: the settings of the training, and what its data decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steadynet.errors import UserError
from steadynet.files import read_toml, record_from, write_toml
from steadynet.plugins import describe_value, fits, requirement

IMPORTED = "imported"  # the method of a network that was trained elsewhere


@dataclass(frozen=True)
class InputFacts:
    """What the training data decided about the network: table ``[input]`` of ``config.toml``.

    Attributes:
        image_shape: The shape of one image: (channels, height, width), or (features,).
        classes: The number of classes.
        mean: The mean of each channel over the training images, if the network normalises its input.
        std: Their standard deviation, likewise.
    """

    image_shape: tuple[int, ...]
    classes: int
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


@dataclass(frozen=True)
class RunConfig:
    """The configuration of one run.

    Attributes:
        settings: Every setting of the training by name, as ``TrainingSettings.as_config`` writes them and
            :func:`~steadynet.training.settings.resolve` reads them.
        input: What the training data decided.
    """

    settings: Mapping[str, Any]
    input: InputFacts

    @property
    def data(self) -> str:
        """The name of the data set, or the path of the user's own file."""
        return self.settings["data"]

    @property
    def model(self) -> str:
        """The name of the architecture, or ``file.py:factory``."""
        return self.settings["model"]

    @property
    def eps(self) -> float:
        """The radius trained for."""
        return self.settings["eps"]

    @property
    def method(self) -> str:
        """The training method, or the phases of several methods."""
        return str(self.settings.get("phases") or self.settings.get("method") or "unknown")

    @property
    def is_imported(self) -> bool:
        """Whether the network was trained elsewhere, so that nothing is known about its training."""
        return self.method == IMPORTED

    @property
    def l1_weight(self) -> float:
        """The weight of the L1 norm of the weights in the loss; the largest one, if parts of the method have others."""
        values = [settings.get("l1_weight") for settings in (self.settings, *self._parts.values())]
        return max((float(value) for value in values if value is not None and fits(value, float)), default=0.0)

    @property
    def searches(self) -> dict[str, str]:
        """The search of each part of the method that has an inner attack, such as ``{"nbc": "fast"}``.

        Runs of earlier versions name the steps of an attack, but no search: they have that of the paper.
        """
        attacking = {name: part for name, part in self._parts.items() if "search" in part or "steps" in part}
        return {name: describe_value(_as_tuple(part.get("search", "paper"))) for name, part in attacking.items()}

    @property
    def _parts(self) -> dict[str, Mapping[str, Any]]:
        methods = self.settings.get("methods")
        found = methods.items() if isinstance(methods, Mapping) else ()
        return {name: part for name, part in found if isinstance(part, Mapping)}

    @property
    def seed(self) -> int:
        """The seed of the training."""
        return int(self.settings.get("seed", 0))


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def write_config(path: Path, config: RunConfig) -> None:
    """Write a run's ``config.toml``."""
    facts = {name: value for name, value in asdict(config.input).items() if value is not None}
    write_toml(path, {**config.settings, "input": facts})


def read_config(path: Path) -> RunConfig:
    """Read a run's ``config.toml``.

    Raises:
        UserError: The file is damaged: it is not TOML, or lacks what every run's configuration has.
    """
    content = read_toml(path)
    needed = {"data", "model", "eps", "input.image_shape", "input.classes"}
    facts = content.pop("input", None)
    found = set(content) | {f"input.{key}" for key in (facts if isinstance(facts, dict) else ())}
    if needed - found:
        raise UserError(f"{path} is damaged: it has no {', '.join(sorted(needed - found))}")
    for name, kind in (("data", str), ("model", str), ("eps", float)):
        if not fits(content[name], kind):
            raise UserError(f"{path} is damaged: {name} = {content[name]!r} {requirement(kind)}")
    try:
        return RunConfig(content, record_from(InputFacts, facts, "input"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
