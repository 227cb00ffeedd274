"""Tune every method of ``methods.toml`` on validation images, with the same small budget for each.

    python benchmarks/tune_methods.py [--out FOLDER] [--models M1@0.1 …] [--methods nbc …] [--share 3] [--write]

Each method with each model has three trials: the learning rates 2e-3 and 8e-3 with its published settings, then the
better rate with the setting that says how strong the method is changed by a factor. A method without such a setting has
the learning rate 4e-3 as its third trial. Each trial trains with seed 0 for a third (--share) of the minutes that the
grid trains for. The best trial has the largest sum of accuracy (all validation images) and proved share (the first 50,
5 of each class, 1 CPU second each, at the radius of the training). Test images are not touched.
A trial whose loss stops being finite has none of either. Of equal trials, the larger rate wins. M1 at ε = 0.1 is not
tuned by itself: it takes what was chosen at ε = 0.3.

The trials are runs in FOLDER, each with a record beside it. If the script is stopped, the same command continues.
Printed are the trials, then the tables for ``methods.toml``; --write puts them there. ``tuning.json`` in FOLDER has the
record of all trials.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from method_tables import MethodSettings, Place, add_choice, chosen_cells, read_settings, show
from steadynet import data as data_sets
from steadynet.errors import NotFiniteError
from steadynet.experiments.cells import Cell
from steadynet.experiments.tuning import strength_of
from steadynet.files import read_record, write_json
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy
from steadynet.runs.trained import load_trained
from steadynet.training.loop import resume, train
from steadynet.training.settings import TrainingSettings, resolve
from steadynet.verification.properties import Verdict
from steadynet.verification.verify import verify

RATES = (2e-3, 8e-3)
OTHER_RATE = 4e-3  # of a method without a strength
PER_CLASS, TIMEOUT = 5, 1.0  # validation images of each class that are verified; CPU seconds for each
FACTORS = {  # how much the strength changes; 3 unless given
    "box": 2.0,
    "shaping": 0.5,
    "pruning": 0.5,
    "gamma_awp": 0.5,
    "taps_weight": 0.5,
}
SHARES = ("box", "ibp_share")  # settings that are at most 1
# The strength of methods that do not declare one, because tuning by accuracy does not move it.
STRENGTHS = {
    "sabr": "box",
    "staps": "box",
    "taps": "taps_weight",
    "mtl-ibp": "ibp_share",
    "cc-ibp": "ibp_share",
    "exp-ibp": "ibp_share",
}
TUNED_AS = {"M1@0.1": "M1@0.3"}  # models that take the choices of another one
VALUES = {"ibp": {"kappa_end": 0.5}, "crown-ibp": {"kappa_end": 0.5}}  # of methods whose strength is 0: another value


@dataclass(frozen=True)
class Trial:
    """One training of a method with a model, and what was measured on validation images. Shares are from 0 to 1."""

    model: str
    method: str
    lr: float
    parts: Mapping[str, Mapping[str, float]]  # what differs from the published settings
    accuracy: float
    proved: float
    properties: int
    cpu_minutes: float

    @property
    def score(self) -> float:
        """What the best trial has most of."""
        return self.accuracy + self.proved


def changed_strength(settings: TrainingSettings) -> dict[str, dict[str, float]]:
    """The setting that says how strong a method is, changed by a factor; empty if the method has none."""
    method = settings.plan[-1].method
    part, name = strength_of(method)
    if part is None:
        part = method.partition("+")[0]
        if part in VALUES:
            return {part: VALUES[part]}
        if part not in STRENGTHS:
            return {}
        name = STRENGTHS[part]
    value = FACTORS.get(name, 3.0) * settings.methods[part][name]
    return {part: {name: min(value, 1.0) if name in SHARES else float(f"{value:.3g}")}}


def shortened(settings: TrainingSettings, values: Mapping[str, Any], share: float, images: int) -> dict[str, Any]:
    """The settings of a training that takes one ``share``-th of the time.

    Args:
        settings: The settings of the whole training.
        values: The same as the grid gives them.
        share: How many times shorter the training is.
        images: How many training images there are.
    """
    (phase,) = settings.plan
    steps = phase.epochs * min(settings.train_images or images, images) / share  # in images
    epochs = max(1, round(steps / images))
    short = {key: value for key, value in values.items() if key != "phases"} | {"method": phase.method}
    short |= {"epochs": epochs, "threads": 1, "device": "cpu"}
    if steps < images:
        short["train_images"] = max(settings.batch_size, round(steps))
    if "warmup" in values:
        short["warmup"] = values["warmup"] * epochs / phase.epochs
    return short


class Tuner:
    """Trains and measures the trials of one cell of the grid."""

    def __init__(self, cell: Cell, folder: Path, share: float) -> None:
        self.cell, self.folder = cell, folder
        whole = resolve(cell.settings)
        self.data = data_sets.load(whole.data)
        trained, self.validation = self.data.split(whole.validation, whole.seed)
        self.values = shortened(whole, cell.settings, share, len(trained))
        self.stronger = changed_strength(whole)

    def trials(self) -> Iterator[Trial]:
        """The trials, each as soon as it is measured."""
        first = []
        for rate in RATES:
            first.append(self._trial(rate, {}))
            yield first[-1]
        best = max(first, key=lambda trial: trial.score)
        yield self._trial(best.lr, self.stronger) if self.stronger else self._trial(OTHER_RATE, {})

    def _trial(self, lr: float, parts: Mapping[str, Mapping[str, float]]) -> Trial:
        methods = {name: dict(table) for name, table in self.values.get("methods", {}).items()}
        for part, table in parts.items():
            methods[part] = methods.get(part, {}) | dict(table)
        settings = resolve(self.values | {"lr": lr, "schedule": "one-cycle", "methods": methods})
        name = hashlib.sha256(json.dumps(settings.as_config(), sort_keys=True).encode()).hexdigest()[:10]
        place = f"{self.cell.model}-{self.cell.variant.label}-{name}".replace("/", "-")
        record = self.folder / f"{place}.json"
        if not record.is_file():
            run = RunDirectory(self.folder / place)
            try:
                if not run.weights.is_file():
                    run = resume(run.path) if run.checkpoint.is_file() else train(settings, run.path, overwrite=True)
            except NotFiniteError as error:
                print(f"{place}: {error}")
                failed = Trial(self.cell.model, self.cell.variant.label, lr, parts, 0.0, 0.0, 0, 0.0)
                write_json(record, asdict(failed))
            else:
                write_json(record, asdict(self._measured(settings, run, parts)))
        return read_record(record, Trial)

    def _measured(
        self, settings: TrainingSettings, run: RunDirectory, parts: Mapping[str, Mapping[str, float]]
    ) -> Trial:
        network = load_trained(run.path).network
        chosen = self.validation.subset(self.validation.first_of_each_class(PER_CLASS, self.data.class_count))
        results = verify(network, chosen.pixels(), chosen.labels, settings.eps, timeout=TIMEOUT, clock="cpu")
        proved = sum(result.verdict is Verdict.UNSAT for result in results)
        return Trial(
            model=self.cell.model,
            method=self.cell.variant.label,
            lr=settings.learning_rate,
            parts=parts,
            accuracy=accuracy(network, self.validation),
            proved=proved / len(results),
            properties=len(results),
            cpu_minutes=sum(epoch.cpu_seconds or 0.0 for epoch in run.read_metrics()) / 60,
        )


def with_choice(settings: MethodSettings, trial: Trial) -> MethodSettings:
    """What the grid gives a method, with the learning rate and the strength of its best trial."""
    return replace(settings, training={**settings.training, "lr": trial.lr}, parts=trial.parts)


def show_trial(trial: Trial) -> None:
    """Print one line."""
    parts = " ".join(f"{part}.{name}={value:g}" for part, table in trial.parts.items() for name, value in table.items())
    print(
        f"{trial.model:10} {trial.method:22} {trial.lr:6g} {parts:24} {100 * trial.accuracy:6.1f} "
        f"{100 * trial.proved:6.1f} {trial.cpu_minutes:8.2f}",
        flush=True,
    )


def main() -> None:
    """Print one line per trial, then the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choice(parser)
    parser.add_argument("--out", type=Path, default=Path("experiments/methods-tuning"), metavar="FOLDER")
    parser.add_argument(
        "--share", type=float, default=3.0, metavar="N", help="train for 1/N of the minutes (default: 3)"
    )
    arguments = parser.parse_args()
    given, best = read_settings(), {}
    print(f"{'model':10} {'method':22} {'lr':>6} {'strength':24} {'acc. %':>6} {'proved':>6} {'CPU min':>8}")
    for cell in chosen_cells(arguments.models, arguments.methods):
        if cell.model in TUNED_AS:
            continue
        tried = []
        for trial in Tuner(cell, arguments.out, arguments.share).trials():
            show_trial(trial)
            tried.append(trial)
        chosen = max(tried, key=lambda trial: (trial.score, trial.lr))
        for model in (cell.model, *(other for other, tuned in TUNED_AS.items() if tuned == cell.model)):
            place: Place = (model, cell.variant.label)
            best[place] = with_choice(given.get(place, MethodSettings()), chosen)
    records = [read_record(path, Trial) for path in sorted(arguments.out.glob("*.json")) if path.stem != "tuning"]
    write_json(arguments.out / "tuning.json", [asdict(trial) | {"score": trial.score} for trial in records])
    print()
    show(best, arguments.write)


if __name__ == "__main__":
    main()
