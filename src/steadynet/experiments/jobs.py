"""What the tasks of an experiment do in its run directories: train, tune, evaluate and verify.

A job that has been done does nothing when it is run again; one that was killed continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from steadynet.devices import DEVICES, full_precision, pick_device
from steadynet.errors import UserError, one_line
from steadynet.experiments.shards import load_data
from steadynet.experiments.tasks import EvaluateJob, Event, Job, Task, TrainingValues, TrainJob, TuneJob, VerifyJob
from steadynet.experiments.tuning import missed_window, tune
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy, evaluate, write_evaluation
from steadynet.runs.metrics import EpochMetrics
from steadynet.runs.trained import TrainedNetwork, load_trained
from steadynet.training.loop import resume, train
from steadynet.training.notation import Phase
from steadynet.training.observer import Position
from steadynet.training.settings import resolve
from steadynet.verification.run import RunVerification
from steadynet.verification.verifiers import make_verifier

REPORT_EVERY = 0.2  # seconds

Report = Callable[[int, int, str], None]  # how much is done, of how much, and a note


def run_task(task: Task, root: Path, on_event: Callable[[Event], None]) -> Event:
    """Run a task.

    Args:
        task: The task.
        root: The experiment's directory.
        on_event: Called with the task's progress.

    Returns:
        The last event: the task is done, or it failed for the reason in ``note``. No exception is raised.
    """
    last = 0.0
    pause = 0.0 if task.kind == "verify" else REPORT_EVERY  # minutes may pass between two properties

    def report(done: int, total: int, note: str) -> None:
        nonlocal last
        if time.monotonic() - last >= pause:
            last = time.monotonic()
            on_event(Event(task.name, "running", done, total, note))

    try:
        _run(task.job, root, report)
    except UserError as error:
        return Event(task.name, "failed", note=one_line(error))
    except Exception as error:  # whatever it is, the other tasks continue
        return Event(task.name, "failed", note=f"{type(error).__name__}: {one_line(error)}")
    return Event(task.name, "done")


def _run(job: Job, root: Path, report: Report) -> None:
    match job:
        case TrainJob():
            _train_or_resume(_with_full_path(job.settings, root), root / job.run, report)
        case TuneJob():
            _tune(job, root, report)
        case EvaluateJob():
            _evaluate(job, root, report)
        case VerifyJob():
            _verify(job, root, report)


def _train_or_resume(values: TrainingValues, path: Path, report: Report) -> RunDirectory:
    """Train a run, or continue with it. A finished run is left as it is."""
    run = RunDirectory(path)
    if run.weights.is_file():
        return run
    observer = _TrainingReporter(report)
    if run.checkpoint.is_file():
        return resume(path, observer=observer)
    return train(resolve(values), path, overwrite=True, observer=observer)


def _with_full_path(values: TrainingValues, root: Path) -> dict[str, Any]:
    """Return the settings with the full path of the run to start from."""
    return dict(values) | ({"init": str(root / values["init"])} if "init" in values else {})


def _tune(job: TuneJob, root: Path, report: Report) -> None:
    tune(
        _with_full_path(job.settings, root),
        job.window,
        job.budget,
        out=root / job.run,
        trials=root / job.trials,
        train=lambda values, path: _train_or_resume(values, path, report),
    )


def _evaluate(job: EvaluateJob, root: Path, report: Report) -> None:
    trained = _load(root / job.run)
    if trained is None:
        return
    test, device = load_data(job.data).test, pick_device(job.device, DEVICES)
    attacked = test.subset(torch.arange(min(job.images or len(test), len(test))))
    *others, last = job.pgd_steps
    done, total = 0, len(attacked) * len(job.radii) * len(job.pgd_steps)

    def on_images(count: int) -> None:
        nonlocal done
        done += count
        report(done, total, "attacked")

    on_images(0)
    network = trained.network.to(device)
    torch.manual_seed(0)
    with full_precision(device):
        result = replace(
            evaluate(network, attacked, job.radii, pgd_steps=last, on_images=on_images),
            accuracy=accuracy(network, test),
            accuracy_images=len(test),
            other_attacks=tuple(
                evaluate(network, attacked, job.radii, pgd_steps=steps, on_images=on_images) for steps in others
            ),
        )
    write_evaluation(trained.run, result)


def _verify(job: VerifyJob, root: Path, report: Report) -> None:
    trained = _load(root / job.run)
    if trained is None:
        return
    shard = TrainedNetwork(trained.network, trained.config, trained.run.shard(job.shard))
    shard.run.path.mkdir(parents=True, exist_ok=True)
    verification = RunVerification(
        shard,
        load_data(job.data).test,
        torch.tensor(job.index),
        [job.eps],
        make_verifier(job.verifier, job.verifier_settings),
        trained.config.data,
        pick_device(job.device, DEVICES),
    )
    torch.manual_seed(0)

    def report_counts() -> None:
        report(len(verification.rows), len(verification), verification.counts())

    report_counts()  # the first verdicts may come minutes later, many at once
    verification.decide(on_row=lambda row: report_counts())


def _load(run: Path) -> TrainedNetwork | None:
    """Load the network of a run; None if tuning did not reach its window, so that there is none."""
    return None if missed_window(run) else load_trained(run)


class _TrainingReporter:
    """Reports the progress of a training in batches."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.epochs = self.batches = 0

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        self.epochs, self.batches = epochs, batches

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        done = position.epoch * self.batches + position.batch
        self.report(done, self.epochs * self.batches, f"epoch {position.epoch + 1}/{self.epochs} {phase.method}")

    def on_epoch(self, metrics: EpochMetrics) -> None:
        """Do nothing: every batch is reported."""
