"""THE loop: phases, steps, validation, checkpoints; killed at any moment, it goes on to the same weights."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from steadynet import data as data_sets
from steadynet import networks
from steadynet.checkpoint import load_tensors, load_weights, optimiser_tensors, restore_optimiser, save_tensors
from steadynet.errors import UserError
from steadynet.evaluation import accuracy, interval_stable_share
from steadynet.interruption import InterruptedByUserError, Interruption
from steadynet.objectives import Batch
from steadynet.run_directory import RunDirectory, disk_errors, write_toml
from steadynet.settings import Phase, TrainingSettings, resolve
from steadynet.trained import build_network

STABLE_SHARE_IMAGES = 256  # of the validation images, enough for a live figure


class Observer(Protocol):
    """Who watches a training: the command line's progress bar, TensorBoard, a notebook."""

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Before the first batch."""

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """After each batch."""

    def on_epoch(self, metrics: dict[str, Any]) -> None:
        """After each epoch, with what ``metrics.jsonl`` holds of it."""


class SilentObserver:
    """Watches and says nothing."""

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Nothing."""

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Nothing."""

    def on_epoch(self, metrics: dict[str, Any]) -> None:
        """Nothing."""


@dataclass
class Position:
    """How far a training is: whole epochs, batches of the epoch under way, and the sums behind its means."""

    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def means(self) -> dict[str, float]:
        """The mean of each loss term over the epoch so far."""
        return {name: value / max(self.batch, 1) for name, value in self.sums.items()}


@dataclass
class _Training:
    """What changes while training, in one place."""

    settings: TrainingSettings
    run: RunDirectory
    network: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.OneCycleLR | None
    images: data_sets.Images
    validation: data_sets.Images
    augment: bool
    device: torch.device
    position: Position

    @property
    def batches(self) -> int:
        return data_sets.batch_count(self.images, self.settings.batch_size)


def train(
    settings: TrainingSettings,
    out: str | Path,
    *,
    network: nn.Module | None = None,
    data: object = None,
    overwrite: bool = False,
    observer: Observer | None = None,
) -> RunDirectory:
    """Train as the settings say, into the directory ``out``; ``network`` and ``data`` replace what they name."""
    run = RunDirectory(Path(out))
    if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
        if not overwrite:
            raise UserError(f"{out} exists: --resume goes on with it, --overwrite starts anew")
        if run.path.is_dir() and not run.config.is_file():
            raise UserError(f"{out} is not a run directory: it is not overwritten")
    dataset = data_sets.load(settings.data if data is None else data)
    torch.manual_seed(settings.seed)
    config = settings.as_config() | {"input": _input_facts(settings, dataset)}
    network = _given(network, dataset) if network is not None else build_network(config)
    if settings.init:
        tensors, _ = load_tensors(RunDirectory.existing(settings.init).weights)
        load_weights(network, tensors, RunDirectory(Path(settings.init)).weights)
    training = _assemble(settings, run, network, dataset)
    _start_directory(run, config, overwrite)
    return _run(training, observer or SilentObserver())


def resume(
    out: str | Path,
    *,
    network: nn.Module | None = None,
    data: object = None,
    observer: Observer | None = None,
    **machine: Any,
) -> RunDirectory:
    """Go on with a run that was stopped, to the same weights it would have had; ``machine``: device and threads."""
    run = RunDirectory.existing(out)
    if run.weights.is_file():
        return run
    config = run.read_config()
    facts = config.pop("input")
    settings = dataclasses.replace(resolve(config), **machine)
    dataset = data_sets.load(settings.data if data is None else data)
    torch.manual_seed(settings.seed)
    network = network if network is not None else build_network(config | {"input": facts}, run)
    if settings.init and not run.checkpoint.is_file():
        tensors, _ = load_tensors(RunDirectory.existing(settings.init).weights)
        load_weights(network, tensors, RunDirectory(Path(settings.init)).weights)
    training = _assemble(settings, run, network, dataset)
    if run.checkpoint.is_file():
        _restore(training)
    return _run(training, observer or SilentObserver())


def _given(network: nn.Module, dataset: data_sets.Dataset) -> nn.Module:
    return networks.check_classifies(network, dataset.image_shape, dataset.class_count)


def _input_facts(settings: TrainingSettings, dataset: data_sets.Dataset) -> dict[str, Any]:
    facts: dict[str, Any] = {"image_shape": list(dataset.image_shape), "classes": dataset.class_count}
    if settings.normalise:
        pixels = dataset.split(settings.validation, settings.seed)[0].pixels()
        axes = (0, *range(2, pixels.dim()))
        facts["mean"] = pixels.mean(axes).tolist()
        facts["std"] = pixels.std(axes).clamp_min(1e-3).tolist()
    return facts


def _start_directory(run: RunDirectory, config: dict[str, Any], overwrite: bool) -> None:
    with disk_errors(run.path):
        if overwrite and run.path.is_dir():
            shutil.rmtree(run.path)
        run.path.mkdir(parents=True, exist_ok=True)
        own = networks.custom_source(config["model"])
        if own and own[0].is_file():
            shutil.copyfile(own[0], run.model_source)
    write_toml(run.config, config)


def _assemble(
    settings: TrainingSettings, run: RunDirectory, network: nn.Module, dataset: data_sets.Dataset
) -> _Training:
    for phase in settings.plan:
        settings.objective(phase.method)  # an unknown method is said before anything is written
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = pick_device(settings.device)
    network = network.to(device)
    if any(parameter.dim() == 4 for parameter in network.parameters()):
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(network.parameters(), settings.learning_rate)
    images, validation = dataset.split(settings.validation, settings.seed)
    epochs = sum(phase.epochs for phase in settings.plan)
    schedule = None
    if settings.schedule == "one-cycle":
        steps = epochs * data_sets.batch_count(images, settings.batch_size)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.learning_rate, total_steps=steps)
    augment = dataset.augment
    return _Training(settings, run, network, optimiser, schedule, images, validation, augment, device, Position())


def pick_device(name: str) -> torch.device:
    """The device asked for; ``auto`` is the best one there is."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, available in there.items() if available)
    if not there[name]:
        raise UserError(f"device {name} is not available on this machine")
    return torch.device(name)


def _run(training: _Training, observer: Observer) -> RunDirectory:
    plan = [phase for phase in training.settings.plan for _ in range(phase.epochs)]
    observer.on_start(len(plan), training.batches, training.position)
    with Interruption() as interruption:
        while training.position.epoch < len(plan):
            _epoch(training, plan[training.position.epoch], observer, interruption)
    save_tensors(training.run.weights, training.network.state_dict(), {"epochs": len(plan)})
    with disk_errors(training.run.checkpoint):
        training.run.checkpoint.unlink(missing_ok=True)
    return training.run


def _epoch(training: _Training, phase: Phase, observer: Observer, interruption: Interruption) -> None:
    settings, position = training.settings, training.position
    objective = settings.objective(phase.method)
    order = _order(len(training.images), settings.seed, position.epoch)[position.batch * settings.batch_size :]
    training.network.train()
    for images, labels in data_sets.batches(
        training.images, settings.batch_size, order=order, augment=training.augment
    ):
        started = time.perf_counter()
        radius = _radius(settings, position.epoch + (position.batch + 1) / training.batches)
        batch = Batch(training.network, images.to(training.device), labels.to(training.device), radius)
        with torch.autocast("cuda", torch.bfloat16, enabled=settings.amp and training.device.type == "cuda"):
            terms = objective.terms(batch)
        _step(training, phase, terms)
        position.batch += 1
        position.seconds += time.perf_counter() - started
        observer.on_batch(position, phase, radius)
        if interruption.requested and position.batch < training.batches:
            _save(training)
            raise InterruptedByUserError(
                f"stopped in epoch {position.epoch + 1} after batch {position.batch}; everything is saved. "
                f"Go on with: steadynet train --resume --out {training.run.path}"
            )
    _finish_epoch(training, phase, observer)


def _step(training: _Training, phase: Phase, terms: dict[str, Tensor]) -> None:
    loss = torch.stack(list(terms.values())).sum()
    values = dict(zip(terms, torch.stack(list(terms.values())).tolist(), strict=True))
    if not torch.isfinite(loss):
        raise UserError(_non_finite_message(training, phase, values))
    training.optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    training.optimiser.step()
    if training.schedule:
        training.schedule.step()
    for name, value in values.items():
        training.position.sums[name] = training.position.sums.get(name, 0.0) + value


def _non_finite_message(training: _Training, phase: Phase, values: dict[str, float]) -> str:
    position = training.position
    shown = ", ".join(f"{name} = {value:g}" for name, value in values.items())
    good = training.run.checkpoint
    last = f"the last good checkpoint is {good}" if good.is_file() else "there is no checkpoint yet"
    return (
        f"the loss is not finite ({shown}) at batch {position.batch + 1} of epoch {position.epoch + 1}, "
        f"phase {phase.method}; {last}. A smaller --lr usually helps"
    )


def _finish_epoch(training: _Training, phase: Phase, observer: Observer) -> None:
    position, settings = training.position, training.settings
    metrics: dict[str, Any] = {
        "epoch": position.epoch + 1,
        "method": phase.method,
        "radius": _radius(settings, position.epoch + 1),
        "lr": training.optimiser.param_groups[0]["lr"],
        "seconds": round(position.seconds, 3),
        "loss": position.means(),
    }
    if len(training.validation):
        metrics["validation_accuracy"] = accuracy(training.network, training.validation)
        metrics["stable_share_ibp"] = interval_stable_share(
            training.network, training.validation, settings.eps, STABLE_SHARE_IMAGES
        )
    training.position = Position(position.epoch + 1)
    _write_metrics(training.run, metrics)
    _save(training)
    observer.on_epoch(metrics)


def _write_metrics(run: RunDirectory, metrics: dict[str, Any]) -> None:
    """Append one epoch; lines of epochs that a killed run had written, but not checkpointed, are dropped."""
    rows = [row for row in run.read_metrics() if row["epoch"] < metrics["epoch"]] + [metrics]
    with disk_errors(run.metrics):
        temporary = run.metrics.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        os.replace(temporary, run.metrics)


def _radius(settings: TrainingSettings, epochs_done: float) -> float:
    return settings.eps * (min(1.0, epochs_done / settings.warmup) if settings.warmup else 1.0)


def _order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of one epoch's images, known from the seed and the epoch alone."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))


def _save(training: _Training) -> None:
    tensors = {f"network.{name}": value for name, value in training.network.state_dict().items()}
    tensors |= optimiser_tensors(training.optimiser)
    tensors["generator.cpu"] = torch.get_rng_state()
    if training.device.type == "cuda":
        tensors["generator.cuda"] = torch.cuda.get_rng_state(training.device)
    facts = {
        "position": dataclasses.asdict(training.position),
        "groups": training.optimiser.state_dict()["param_groups"],
        "schedule": training.schedule.state_dict() if training.schedule else None,
    }
    save_tensors(training.run.checkpoint, tensors, facts)


def _restore(training: _Training) -> None:
    tensors, facts = load_tensors(training.run.checkpoint)
    weights = {name[8:]: value for name, value in tensors.items() if name.startswith("network.")}
    load_weights(training.network, weights, training.run.checkpoint)
    restore_optimiser(training.optimiser, tensors, facts["groups"])
    if training.schedule:
        training.schedule.load_state_dict(facts["schedule"])
    torch.set_rng_state(tensors["generator.cpu"])
    if "generator.cuda" in tensors and training.device.type == "cuda":
        torch.cuda.set_rng_state(tensors["generator.cuda"], training.device)
    training.position = Position(**facts["position"])
