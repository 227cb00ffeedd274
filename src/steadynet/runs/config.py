"""What a run's ``config.toml`` holds: the settings of the training, and what its data decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steadynet.errors import UserError
from steadynet.files import read_toml, record_from, write_toml
from steadynet.plugins import fits, requirement


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
    def l1_weight(self) -> float:
        """The weight of the L1 norm of the weights in the loss: the largest one, if the phases have several."""
        methods = self.settings.get("methods", {}).values()
        own = [part["l1_weight"] for part in methods if "l1_weight" in part]
        return float(max([*own, self.settings.get("l1_weight") or 0.0]))

    @property
    def searches(self) -> dict[str, str]:
        """The search of each part of the method that has an inner attack, such as ``{"nbc": "fast"}``."""
        methods = self.settings.get("methods", {})
        found = {part: values.get("search", "paper") for part, values in methods.items() if _attacks(values)}
        return {part: value if isinstance(value, str) else ",".join(map(str, value)) for part, value in found.items()}

    @property
    def seed(self) -> int:
        """The seed of the training."""
        return int(self.settings.get("seed", 0))


def _attacks(values: Mapping[str, Any]) -> bool:
    """Whether a part of a method has an inner attack: runs of earlier versions have its steps, but no search."""
    return "search" in values or "steps" in values


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
