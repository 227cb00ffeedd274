"""The strength of a method at which a fine-tuned network's accuracy lands in a window: bisection on validation images.

The strength is the weight that a method calls its own (β of nbc, w_rs of rs, …); a method without one is tuned by the
radius it trains for.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steadynet import data as data_sets
from steadynet import objectives
from steadynet.errors import UserError
from steadynet.files import read_json, write_json
from steadynet.plugins import setting
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy
from steadynet.runs.trained import load_trained
from steadynet.training.settings import TrainingSettings, resolve

FACTOR = 4.0  # from a strength to the next until the window lies between two
Train = Callable[[dict[str, Any], Path], RunDirectory]


@dataclass(frozen=True)
class AccuracyWindow:
    """How many percentage points of accuracy may be lost: at least ``low``, at most ``high``."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UserError(f"target drop {self.low:g} to {self.high:g}: the first must be less than the second")


@dataclass(frozen=True)
class TuningBudget:
    """How hard to search: short fine-tunings of ``trial_epochs``, then a few of full length."""

    trial_epochs: int = setting(5, "epochs of a short fine-tuning")
    trials: int = setting(8, "short fine-tunings at most")
    full_trials: int = setting(3, "fine-tunings of full length at most")

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise UserError(f"{name} = {value} must be 1 or more")


def strength_of(method: str) -> tuple[str | None, str]:
    """(part, setting) that says how strong a method is; (None, "eps") where none of its parts has one.

    >>> strength_of("nbc"), strength_of("trades+nbc"), strength_of("madry")
    (('nbc', 'beta'), ('nbc', 'beta'), (None, 'eps'))
    """
    for part in reversed(objectives.parts_of(method)):
        strength = objectives.available()[part].strength
        if strength:
            return part, strength
    return None, "eps"


def search(
    measure: Callable[[float], float], window: AccuracyWindow, start: float, most: int, high: float = math.inf
) -> tuple[float | None, list[tuple[float, float]]]:
    """A strength whose drop lies in the window, or None, and every (strength, drop) tried.

    The drop is taken to grow with the strength: it is multiplied or divided until the window lies between two that were
    tried, then bisected (geometrically).

    >>> found, tried = search(lambda strength: 2 * strength, AccuracyWindow(5, 6), start=0.5, most=9)
    >>> found, len(tried)
    (2.8284271247461903, 5)
    """
    tried: list[tuple[float, float]] = []
    weak, strong, strength = 0.0, math.inf, min(start, high)
    while len(tried) < most:
        drop = measure(strength)
        tried.append((strength, drop))
        if window.low <= drop <= window.high:
            return strength, tried
        if drop < window.low:
            weak = max(weak, strength)
        else:
            strong = min(strong, strength)
        if weak >= high or weak >= strong:
            break
        if strong is math.inf:
            strength = min(weak * FACTOR, high)
        else:
            strength = math.sqrt(weak * strong) if weak else strong / FACTOR
    return None, tried


def tune(
    values: Mapping[str, Any], window: AccuracyWindow, effort: TuningBudget, *, out: Path, trials: Path, train: Train
) -> dict[str, Any]:
    """Fine-tune ``values["init"]`` so that its validation accuracy drops into the window; write that run to ``out``.

    Every trial is a run below ``trials``: killed, the search goes on. A window that cannot be reached leaves no run in
    ``out``, only the record of the search.
    """
    if RunDirectory(out).weights.is_file():
        return read_record(out)
    settings = resolve(values)
    part, name = strength_of(settings.plan[-1].method)
    before = 100 * _validation_accuracy(Path(str(settings.init)), settings)
    record: dict[str, Any] = {"method": settings.plan[-1].method, "strength": f"{part}.{name}" if part else name}
    record |= {"target_drop": [window.low, window.high], "accuracy_before": before, "trials": []}

    def measure_after(epochs: int) -> Callable[[float], float]:
        def measure(strength: float) -> float:
            changed = _with(values, settings, part, name, strength, epochs)
            run = train(changed, trials / f"{epochs}-epochs-{strength:.6g}")
            drop = before - 100 * _validation_accuracy(run.path, settings)
            record["trials"].append({"epochs": epochs, "value": strength, "drop": drop})
            return drop

        return measure

    start = settings.eps if part is None else float(settings.methods[part][name]) or 1.0
    limit = settings.eps if part is None else math.inf
    full = settings.total_epochs
    found, tried = search(measure_after(min(effort.trial_epochs, full)), window, start, effort.trials, limit)
    if found is None:
        found = min(tried, key=lambda pair: max(window.low - pair[1], pair[1] - window.high))[0]
    if full > effort.trial_epochs or found not in [strength for strength, _ in tried]:
        final, _ = search(measure_after(full), window, found, effort.full_trials, limit)
    else:
        final = found if any(window.low <= drop <= window.high for _, drop in tried) else None
    return _finish(record, final, full, out, trials)


def _finish(record: dict[str, Any], final: float | None, epochs: int, out: Path, trials: Path) -> dict[str, Any]:
    record |= {"reached": final is not None, "value": final}
    if final is None:
        write_json(RunDirectory(out).tuning, record)
        return record
    drop = [trial["drop"] for trial in record["trials"] if trial["value"] == final][-1]
    record |= {"drop": drop, "accuracy": record["accuracy_before"] - drop}
    made = out.with_name(f".{out.name}.made")
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(trials / f"{epochs}-epochs-{final:.6g}", made)
    write_json(RunDirectory(made).tuning, record)
    shutil.rmtree(out, ignore_errors=True)  # at most the record of an earlier search
    made.rename(out)
    return record


def read_record(run: Path) -> dict[str, Any]:
    """What was tried, and whether the window was reached."""
    path = RunDirectory(run).tuning
    return read_json(path) if path.is_file() else {}


def missed(run: Path) -> bool:
    """Whether a search ended without reaching its window."""
    return read_record(run).get("reached") is False


def _with(
    values: Mapping[str, Any], settings: TrainingSettings, part: str | None, name: str, strength: float, epochs: int
) -> dict[str, Any]:
    """The settings with another strength, shortened to so many epochs, phase by phase."""
    plan, total = settings.plan, settings.total_epochs
    shares = [max(1, round(phase.epochs * epochs / total)) for phase in plan]
    phases = " ".join(f"{phase.method}:{count}" for phase, count in zip(plan, shares, strict=True))
    changed = {key: value for key, value in values.items() if key not in ("method", "epochs")} | {"phases": phases}
    if part is None:
        return changed | {"eps": strength}
    tables = {key: dict(table) for key, table in values.get("methods", {}).items()}
    tables[part] = tables.get(part, {}) | {name: strength}
    return {key: value for key, value in changed.items() if key != name} | {"methods": tables}


def _validation_accuracy(run: Path, settings: TrainingSettings) -> float:
    """On the images that the fine-tuning holds out, never on test images."""
    held_out = data_sets.load(settings.data).split(settings.validation, settings.seed)[1]
    if not len(held_out):
        raise UserError("tuning needs validation images: --validation 0.1")
    return accuracy(load_trained(run).network, held_out)
