"""Tuning: search the strength of a method at which fine-tuning costs a given accuracy.

The strength is the weight that a method declares as such (β of ``nbc``, for example). A method without one is tuned by
the radius that it trains for, and so is one that costs too much however small its weight is. Accuracy is measured on
validation images, never on test images.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from steadynet import data as data_sets
from steadynet import objectives
from steadynet.errors import UserError
from steadynet.experiments.strength_search import AccuracyWindow, search
from steadynet.files import read_record, write_json
from steadynet.plugins import setting
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy
from steadynet.runs.trained import load_trained
from steadynet.training.settings import TrainingSettings, resolve

LARGEST_RADIUS = 4.0  # times the radius of the settings, if the radius is what is tuned
Train = Callable[[dict[str, Any], Path], RunDirectory]


@dataclass(frozen=True)
class TuningBudget:
    """How much to search: short fine-tunings of ``trial_epochs`` first, then some of full length."""

    trial_epochs: int = setting(5, "epochs of a short fine-tuning")
    trials: int = setting(8, "largest number of short fine-tunings")
    full_trials: int = setting(3, "largest number of fine-tunings of full length")

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise UserError(f"{name} = {value} must be 1 or more")


class Strength(NamedTuple):
    """The setting that says how strong a method is; ``part`` is None where it is the radius of the training."""

    part: str | None
    setting: str

    def __str__(self) -> str:
        return f"{self.part}.{self.setting}" if self.part else self.setting


@dataclass(frozen=True)
class Trial:
    """One fine-tuning: its epochs, the strength, and the accuracy that it cost."""

    epochs: int
    value: float
    drop: float


@dataclass(frozen=True)
class TuningRecord:
    """The search for a strength, as ``tuning.json`` stores it. Accuracies are in per cent.

    ``value``, ``drop`` and ``accuracy`` are None if no strength reaches the window.
    """

    method: str
    strength: str
    target_drop: tuple[float, ...]  # least and most
    accuracy_before: float
    trials: tuple[Trial, ...]
    reached: bool
    value: float | None = None
    drop: float | None = None
    accuracy: float | None = None


def strength_of(method: str) -> Strength:
    """Return the setting that says how strong a method is.

    >>> print(strength_of("nbc"), strength_of("trades+nbc"), strength_of("madry"))
    nbc.beta nbc.beta eps
    """
    for part in reversed(objectives.parts_of(method)):
        strength = objectives.named(part).strength
        if strength:
            return Strength(part, strength)
    return Strength(None, "eps")


def tune(
    values: Mapping[str, Any], window: AccuracyWindow, budget: TuningBudget, *, out: Path, trials: Path, train: Train
) -> TuningRecord:
    """Fine-tune a network so that its validation accuracy drops into a window.

    Every trial is a run below ``trials``. If the process is killed, the same call continues the search.

    Args:
        values: Settings of the training; ``init`` is the run to start from.
        window: How many percentage points to lose.
        budget: How much to search.
        out: Where the run that reaches the window is written. If none does, only ``tuning.json`` is written there.
        trials: The folder of the trials.
        train: Trains a run with the given settings at the given path. A finished run there should be used as it is.

    Returns:
        What was tried, and which strength was found.

    Raises:
        UserError: The settings are not valid, the run to start from cannot be loaded, or ``out`` holds another run.
    """
    if RunDirectory(out).weights.is_file():
        if (finished := read_tuning(out)) is None:
            raise UserError(f"{out} holds a run that was not tuned: choose another folder")
        return finished
    tuner = _Tuner(values, window, trials, train)
    full = tuner.settings.total_epochs
    short = min(budget.trial_epochs, full)
    found, tried = tuner.search(short, tuner.start, budget.trials)
    if tuner.strength.part is not None and all(drop > window.high for _, drop in tried):
        tuner.strength = Strength(None, "eps")
        found, tried = tuner.search(short, tuner.start / 2, budget.trials)
    if full > short:
        nearest = min(tried, key=lambda pair: window.distance(pair[1]))[0]
        found, _ = tuner.search(full, found if found is not None else nearest, budget.full_trials, tried)
    record = tuner.record(found)
    _write(record, out, None if found is None else tuner.trial_path(full, found))
    return record


class _Tuner:
    """Trains and measures the trials of one search."""

    def __init__(self, values: Mapping[str, Any], window: AccuracyWindow, folder: Path, train: Train) -> None:
        self.values, self.window, self.folder, self.train = values, window, folder, train
        self.settings = resolve(values)
        self.method = self.settings.plan[-1].method
        self.strength = strength_of(self.method)
        self.before = 100 * _validation_accuracy(Path(str(self.settings.init)), self.settings)
        self.trials: list[Trial] = []

    @property
    def start(self) -> float:
        """The strength that the settings give."""
        part, name = self.strength
        return self.settings.eps if part is None else float(self.settings.methods[part][name]) or 1.0

    def search(
        self, epochs: int, start: float, most: int, expected: Sequence[tuple[float, float]] = ()
    ) -> tuple[float | None, list[tuple[float, float]]]:
        """Search with fine-tunings of so many epochs; ``expected`` are the drops of shorter ones."""
        limit = min(LARGEST_RADIUS * self.settings.eps, 1.0) if self.strength.part is None else math.inf
        return search(lambda strength: self._drop(epochs, strength), self.window, start, most, limit, expected)

    def trial_path(self, epochs: int, strength: float) -> Path:
        return self.folder / f"{epochs}-epochs-{self.strength.setting}-{strength:.6g}"

    def _drop(self, epochs: int, strength: float) -> float:
        changed = _with_strength(self.values, self.settings, self.strength, strength, epochs)
        run = self.train(changed, self.trial_path(epochs, strength))
        drop = self.before - 100 * _validation_accuracy(run.path, self.settings)
        self.trials.append(Trial(epochs, strength, drop))
        return drop

    def record(self, found: float | None) -> TuningRecord:
        """Return the record of the search, which has found this strength."""
        drop = None if found is None else [trial.drop for trial in self.trials if trial.value == found][-1]
        return TuningRecord(
            method=self.method,
            strength=str(self.strength),
            target_drop=(self.window.low, self.window.high),
            accuracy_before=self.before,
            trials=tuple(self.trials),
            reached=found is not None,
            value=found,
            drop=drop,
            accuracy=None if drop is None else self.before - drop,
        )


def _write(record: TuningRecord, out: Path, trial: Path | None) -> None:
    """Write the record to ``out``, together with a copy of the trial that reached the window."""
    if trial is None:
        write_json(RunDirectory(out).tuning, asdict(record))
        return
    copy = out.with_name(f".{out.name}.made")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(trial, copy)
    write_json(RunDirectory(copy).tuning, asdict(record))
    shutil.rmtree(out, ignore_errors=True)  # at most the record of an earlier search
    copy.rename(out)


def read_tuning(run: Path) -> TuningRecord | None:
    """Read the record of the search that made a run; None if the run was not tuned.

    Raises:
        UserError: The file is damaged.
    """
    path = RunDirectory(run).tuning
    return read_record(path, TuningRecord) if path.is_file() else None


def missed_window(run: Path) -> bool:
    """Return whether a search ended without reaching its window."""
    record = read_tuning(run)
    return record is not None and not record.reached


def _with_strength(
    values: Mapping[str, Any], settings: TrainingSettings, strength: Strength, value: float, epochs: int
) -> dict[str, Any]:
    """Return the settings with another strength, and with each phase shortened so that all have ``epochs`` epochs."""
    plan, total = settings.plan, settings.total_epochs
    shares = [max(1, round(phase.epochs * epochs / total)) for phase in plan]
    phases = " ".join(f"{phase.method}:{count}" for phase, count in zip(plan, shares, strict=True))
    changed = {key: value for key, value in values.items() if key not in ("method", "epochs")} | {"phases": phases}
    part, name = strength
    if part is None:
        return changed | {"eps": value}
    tables = {key: dict(table) for key, table in values.get("methods", {}).items()}
    tables[part] = tables.get(part, {}) | {name: value}
    return {key: value for key, value in changed.items() if key != name} | {"methods": tables}


def _validation_accuracy(run: Path, settings: TrainingSettings) -> float:
    held_out = data_sets.load(settings.data).split(settings.validation, settings.seed)[1]
    if not len(held_out):
        raise UserError("tuning needs validation images: --validation 0.1")
    return accuracy(load_trained(run).network, held_out)
