"""THE loop: phases, steps, validation, checkpoints; killed at any moment, it goes on to the same weights."""

from __future__ import annotations

import dataclasses
import math
import shlex
import shutil
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from steadynet import data as data_sets
from steadynet import networks
from steadynet.errors import UserError
from steadynet.files import disk_errors, write_atomically
from steadynet.runs.config import InputFacts, RunConfig
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy, interval_stable_share
from steadynet.runs.metrics import EpochMetrics
from steadynet.runs.tensors import load_tensors, load_weights, save_tensors
from steadynet.runs.trained import build_network, finished
from steadynet.training.distributed.group import joined
from steadynet.training.interruption import InterruptedByUserError, Interruption
from steadynet.training.notation import Phase
from steadynet.training.observer import Observer, Position, SilentObserver
from steadynet.training.settings import TrainingSettings, resolve
from steadynet.training.state import TrainingState, assemble, restore, save

STABLE_SHARE_IMAGES = 256  # of the validation images, enough for a live figure


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
    if network is not None:
        settings = dataclasses.replace(settings, model=networks.GIVEN)
    with joined(settings.device) as group:
        group.on_first(lambda: _check_place(run, settings, overwrite))
        dataset = data_sets.load(settings.data if data is None else data)
        torch.manual_seed(settings.seed)
        config = RunConfig(settings.as_config(), _input_facts(settings, dataset))
        network = _network(network, config, dataset)
        _load_initial(network, settings)
        state = assemble(settings, run, network, dataset, group)
        group.on_first(lambda: _open(run, settings, config, overwrite))
        return _run(state, observer or SilentObserver())


def resume(
    out: str | Path,
    *,
    network: nn.Module | None = None,
    data: object = None,
    observer: Observer | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> RunDirectory:
    """Go on with a run that was stopped, to the same weights it would have had; ``machine``: device and threads."""
    run = RunDirectory.existing(out)
    if run.weights.is_file():
        return run
    config = run.read_config()
    machine = {"device": device, "threads": threads}
    settings = resolve({**config.settings, **{name: value for name, value in machine.items() if value is not None}})
    with joined(settings.device) as group:
        group.on_first(run.remove_left_overs)
        dataset = data_sets.load(settings.data if data is None else data)
        torch.manual_seed(settings.seed)
        network = _network(network, config, dataset, run)
        if not run.checkpoint.is_file():
            _load_initial(network, settings)
        state = assemble(settings, run, network, dataset, group)
        group.on_first(lambda: _keep_model_source(run, settings))
        if run.checkpoint.is_file():
            restore(state)
        return _run(state, observer or SilentObserver())


def _open(run: RunDirectory, settings: TrainingSettings, config: RunConfig, overwrite: bool) -> None:
    """The first files of a new run."""
    if overwrite and run.path.is_dir():
        run.clear()
    run.write_config(config)
    _keep_model_source(run, settings)


def _check_place(run: RunDirectory, settings: TrainingSettings, overwrite: bool) -> None:
    """Refuse to write where anything else is, or over the run whose weights are to be loaded."""
    with disk_errors(run.path):
        if settings.init and Path(settings.init).resolve() == run.path.resolve():
            raise UserError(f"{run.path} cannot be both --init and --out")
        if run.is_free():
            return
        if not run.is_run():
            raise UserError(f"{run.path} exists and is not a run directory: choose another --out")
        if not overwrite:
            raise UserError(f"{run.path} exists: --resume goes on with it, --overwrite starts anew")


def _network(
    given: nn.Module | None, config: RunConfig, dataset: data_sets.Dataset, run: RunDirectory | None = None
) -> nn.Module:
    """The network given, else the one configured, once it is shown to fit the data."""
    return networks.check_classifies(build_network(config, run, given), dataset.image_shape, dataset.class_count)


def _load_initial(network: nn.Module, settings: TrainingSettings) -> None:
    if settings.init:
        run = finished(settings.init)
        load_weights(network, load_tensors(run.weights)[0], run.weights)
    elif settings.initialisation == "ibp":
        networks.initialise_for_intervals(network)


def _input_facts(settings: TrainingSettings, dataset: data_sets.Dataset) -> InputFacts:
    """What the data decides about the network; with statistics of the training images if the settings ask for them."""
    facts = InputFacts(dataset.image_shape, dataset.class_count)
    if not settings.normalise:
        return facts
    pixels = dataset.split(settings.validation, settings.seed)[0].pixels()
    axes = (0, *range(2, pixels.dim()))
    mean, std = pixels.mean(axes), pixels.std(axes, correction=0).clamp_min(1e-3)
    return dataclasses.replace(facts, mean=tuple(mean.tolist()), std=tuple(std.tolist()))


def _keep_model_source(run: RunDirectory, settings: TrainingSettings) -> None:
    own = networks.custom_source(settings.model)
    if own and own[0].is_file() and not run.model_source.is_file():
        source = own[0]
        write_atomically(run.model_source, lambda temporary: shutil.copyfile(source, temporary))


def _run(state: TrainingState, observer: Observer) -> RunDirectory:
    plan = [phase for phase in state.settings.plan for _ in range(phase.epochs)]
    observer = observer if state.group.is_first else SilentObserver()
    observer.on_start(len(plan), state.batches, state.position)
    with Interruption() as interruption:
        while state.position.epoch < len(plan):
            _epoch(state, plan[state.position.epoch], observer, interruption)
    state.group.on_first(lambda: _finish(state, len(plan)))
    return state.run


def _finish(state: TrainingState, epochs: int) -> None:
    save_tensors(state.run.weights, state.network.state_dict(), {"epochs": epochs})
    with disk_errors(state.run.checkpoint):
        state.run.checkpoint.unlink(missing_ok=True)


def _epoch(state: TrainingState, phase: Phase, observer: Observer, interruption: Interruption) -> None:
    settings, position = state.settings, state.position
    objective = settings.objective(phase.method)
    order = _order(len(state.images), settings.seed, position.epoch)[position.batch * settings.batch_size :]
    state.network.train()
    for images, labels in data_sets.batches(state.images, settings.batch_size, order=order, augment=state.augment):
        started = time.perf_counter()
        share = settings.radius_share(position.epoch + (position.batch + 1) / state.batches)
        radius = settings.eps * share
        rows = state.group.rows(len(images))
        _step(state, phase, state.terms(objective, images, labels, share, rows), rows.share)
        position.batch += 1
        position.seconds += time.perf_counter() - started
        observer.on_batch(position, phase, radius)
        if state.group.any(interruption.requested) and position.batch < state.batches:
            _check_weights(state, phase)
            save(state)
            program = "steadynet" if state.group.is_alone else "torchrun … -m steadynet"
            raise InterruptedByUserError(
                f"stopped in epoch {position.epoch + 1} after batch {position.batch}; everything is saved. "
                f"Go on with: {program} train --resume --out {shlex.quote(str(state.run.path))}"
            )
    _finish_epoch(state, phase, observer)


def _step(state: TrainingState, phase: Phase, terms: dict[str, Tensor], weight: float) -> None:
    """One step by the loss of the whole batch, of which this process has the terms of its rows, of this weight."""
    weighted = torch.stack(list(terms.values())) * weight
    values = dict(zip(terms, state.group.total(weighted).tolist(), strict=True))
    if not math.isfinite(sum(values.values())):
        shown = ", ".join(f"{name} = {value:g}" for name, value in values.items())
        raise _not_finite(f"loss is not finite ({shown}) at batch {state.position.batch + 1}", state, phase)
    state.position.lr = state.optimiser.param_groups[0]["lr"]
    state.optimiser.zero_grad()
    weighted.sum().backward()
    state.group.add_gradients(list(state.network.parameters()))
    if state.settings.gradient_clip:
        nn.utils.clip_grad_norm_(state.network.parameters(), state.settings.gradient_clip)
    state.optimiser.step()
    if state.schedule:
        state.schedule.step()
    for name, value in values.items():
        state.position.sums[name] = state.position.sums.get(name, 0.0) + value


def _check_weights(state: TrainingState, phase: Phase) -> None:
    """Weights that are not finite must not replace a good checkpoint."""
    for name, weights in state.network.named_parameters():
        if not torch.isfinite(weights).all():
            raise _not_finite(f"weights {name} are not finite after batch {state.position.batch}", state, phase)


def _not_finite(what: str, state: TrainingState, phase: Phase) -> UserError:
    good = state.run.checkpoint
    last = f"the last good checkpoint is {good}" if good.is_file() else "there is no checkpoint yet"
    return UserError(
        f"the {what} of epoch {state.position.epoch + 1}, phase {phase.method}; {last}. A smaller --lr usually helps"
    )


def _finish_epoch(state: TrainingState, phase: Phase, observer: Observer) -> None:
    _check_weights(state, phase)
    metrics = state.group.on_first(lambda: _measure(state, phase))
    state.position = Position(state.position.epoch + 1)
    save(state)
    if metrics:
        observer.on_epoch(metrics)


def _measure(state: TrainingState, phase: Phase) -> EpochMetrics:
    """Measure the epoch that just ended, and write its metrics into the run directory."""
    position, settings = state.position, state.settings
    network, validation = state.network, state.validation
    metrics = EpochMetrics(
        epoch=position.epoch + 1,
        method=phase.method,
        radius=settings.eps * settings.radius_share(position.epoch + 1),
        lr=position.lr,
        seconds=round(position.seconds, 3),
        loss=position.means(),
    )
    if len(validation):
        metrics = dataclasses.replace(
            metrics,
            validation_accuracy=accuracy(network, validation),
            stable_share_ibp=interval_stable_share(network, validation, settings.eps, STABLE_SHARE_IMAGES),
        )
    state.run.add_metrics(metrics)
    return metrics


def _order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of one epoch's images, known from the seed and the epoch alone."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
