"""What a task does: train, tune, evaluate or verify, in its run directory; what is there already is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from steadynet import data as data_sets
from steadynet.devices import DEVICES, full_precision, pick_device
from steadynet.errors import UserError, one_line
from steadynet.experiments import tuning
from steadynet.experiments.tasks import Event, Task
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy, evaluate, write_evaluation
from steadynet.runs.metrics import EpochMetrics
from steadynet.runs.trained import TrainedNetwork, load_trained
from steadynet.training.loop import resume, train
from steadynet.training.notation import Phase
from steadynet.training.observer import Position
from steadynet.training.settings import resolve
from steadynet.verification.run import RunVerification
from steadynet.verification.verify import make_verifier

NEWS_EVERY = 0.2  # seconds

Report = Callable[[int, int, str], None]


def executed(task: Task, root: Path, tell: Callable[[Event], None]) -> Event:
    """Do a task below ``root``, telling how far it is; how it ended, whatever it raises."""
    last = 0.0
    pause = 0.0 if task.kind == "verify" else NEWS_EVERY  # minutes may pass between two properties

    def report(done: int, total: int, note: str) -> None:
        nonlocal last
        if time.monotonic() - last >= pause:
            last = time.monotonic()
            tell(Event(task.name, "running", done, total, note))

    try:
        result = _DO[task.kind](task.spec, root, report)
    except UserError as error:
        return Event(task.name, "failed", note=one_line(error))
    except Exception as error:  # whatever broke, the other tasks go on, and this one says what it was
        return Event(task.name, "failed", note=f"{type(error).__name__}: {one_line(error)}")
    return Event(task.name, "done", result=result)


def train_or_go_on(values: dict[str, Any], path: Path, report: Report) -> RunDirectory:
    """A finished run with these settings: as it is, gone on with, or trained from the start."""
    run = RunDirectory(path)
    if run.weights.is_file():
        return run
    observer = _Reporter(report)
    if run.checkpoint.is_file():
        return resume(path, observer=observer)
    return train(resolve(values), path, overwrite=True, observer=observer)


def _train(spec: dict[str, Any], root: Path, report: Report) -> dict[str, Any]:
    train_or_go_on(_settings(spec, root), root / spec["run"], report)
    return {}


def _tune(spec: dict[str, Any], root: Path, report: Report) -> dict[str, Any]:
    return tuning.tune(
        _settings(spec, root),
        tuning.AccuracyWindow(*spec["drop"]),
        tuning.TuningBudget(**spec["tuning"]),
        out=root / spec["run"],
        trials=root / spec["trials"],
        train=lambda values, path: train_or_go_on(values, path, report),
    )


def _settings(spec: dict[str, Any], root: Path) -> dict[str, Any]:
    values = dict(spec["settings"])
    return values | {"init": str(root / values["init"])} if "init" in values else values


def _evaluate(spec: dict[str, Any], root: Path, report: Report) -> dict[str, Any]:
    trained, dataset = _trained(spec, root)
    if trained is None:
        return {}
    test = dataset.test
    part = test.subset(torch.arange(min(spec["images"] or len(test), len(test))))
    *others, last = spec["pgd_steps"]
    done, total = 0, len(part) * len(spec["radii"]) * len(spec["pgd_steps"])

    def on_images(count: int) -> None:
        nonlocal done
        done += count
        report(done, total, "attacked")

    on_images(0)
    network = trained.network.to(_device(spec))
    torch.manual_seed(0)
    with full_precision(_device(spec)):
        result = evaluate(network, part, spec["radii"], pgd_steps=last, on_images=on_images)
        result = replace(
            result,
            accuracy=accuracy(network, test),
            accuracy_images=len(test),
            other_attacks=tuple(
                evaluate(network, part, spec["radii"], pgd_steps=steps, on_images=on_images) for steps in others
            ),
        )
    write_evaluation(trained.run, result)
    return {}


def _verify(spec: dict[str, Any], root: Path, report: Report) -> dict[str, Any]:
    trained, dataset = _trained(spec, root)
    if trained is None:
        return {}
    shard = TrainedNetwork(trained.network, trained.config, trained.run.shard(spec["shard"]))
    shard.run.path.mkdir(parents=True, exist_ok=True)
    verifier = make_verifier(spec["verifier"], spec["verifier_settings"])
    torch.manual_seed(0)
    index, radii = torch.tensor(spec["index"]), [spec["eps"]]
    asked = RunVerification(shard, dataset.test, index, radii, verifier, trained.config.data, _device(spec))

    def tell() -> None:
        report(len(asked.rows), len(asked), asked.counts())

    tell()  # where it begins: the first verdicts may come minutes later, many at once
    asked.decide(on_row=lambda row: tell())
    return {"verdicts": asked.counts()}


def _trained(spec: dict[str, Any], root: Path) -> tuple[TrainedNetwork | None, data_sets.Dataset]:
    """The network of the run and its data; None where tuning found that there is none."""
    dataset = _data(spec["data"])
    if tuning.missed(root / spec["run"]):
        return None, dataset
    return load_trained(root / spec["run"]), dataset


def _device(spec: dict[str, Any]) -> torch.device:
    """Where the task computes: on a GPU if it asked for one."""
    return pick_device(spec.get("device", "cpu"), DEVICES)


@lru_cache(maxsize=2)
def _data(name: str) -> data_sets.Dataset:
    return data_sets.load(name)


class _Reporter:
    """Tells of a training in batches."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.epochs = self.batches = 0

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        self.epochs, self.batches = epochs, batches

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        done = position.epoch * self.batches + position.batch
        self.report(done, self.epochs * self.batches, f"epoch {position.epoch + 1}/{self.epochs} {phase.method}")

    def on_epoch(self, metrics: EpochMetrics) -> None:
        """Nothing: the batches tell."""


_DO: dict[str, Callable[[dict[str, Any], Path, Report], dict[str, Any]]] = {
    "train": _train,
    "tune": _tune,
    "evaluate": _evaluate,
    "verify": _verify,
}
