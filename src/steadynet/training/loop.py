"""The training loop: phases, epochs, steps, validation and checkpoints.

A training that is killed at any moment can be resumed, and ends with the same weights (on a CPU, bit by bit).
"""

from __future__ import annotations

import dataclasses
import shlex
import time
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from steadynet import data as data_sets
from steadynet import networks
from steadynet.errors import UserError
from steadynet.files import disk_errors
from steadynet.graph.training_graph import normalises_batches
from steadynet.objectives import Moment
from steadynet.runs.config import RunConfig
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy, interval_stable_share
from steadynet.runs.metrics import EpochMetrics
from steadynet.runs.tensors import save_tensors
from steadynet.training.distributed.process_group import join_process_group
from steadynet.training.interruption import InterruptedByUserError, Interruption
from steadynet.training.notation import Phase
from steadynet.training.observer import Observer, Position, SilentObserver, following
from steadynet.training.preparation import (
    check_place,
    fitting_network,
    input_facts,
    keep_sources,
    open_run,
    set_initial_weights,
    with_initialisation,
    with_onnx_network,
)
from steadynet.training.settings import TrainingSettings, resolve
from steadynet.training.state import TrainingState, assemble, restore, save
from steadynet.training.step import check_weights, descend, differentiate

STABLE_SHARE_IMAGES = 256  # validation images for the stable share of each epoch: enough for a live figure


def train(
    settings: TrainingSettings,
    out: str | Path,
    *,
    network: nn.Module | None = None,
    data: object = None,
    overwrite: bool = False,
    observer: Observer | None = None,
    progress: bool | None = None,
) -> RunDirectory:
    """Train a network and write it, with everything measured on the way, into a run directory.

    Args:
        settings: The settings, as :func:`~steadynet.training.settings.resolve` returns them.
        out: The run directory to write.
        network: A network to train instead of the one that the settings name. It is trained in place.
        data: A data set instead of the one that the settings name: anything that :func:`steadynet.data.load` takes.
        overwrite: Whether to replace a run that is in ``out``.
        observer: Who follows the training.
        progress: Whether to show a progress bar. Unless given, notebooks show one if there is no observer.

    Returns:
        The run directory, for :func:`~steadynet.runs.trained.load_trained`.

    Raises:
        UserError: The network does not fit the data, ``out`` holds something else, or the loss is not finite.
        InterruptedByUserError: The user pressed Ctrl-C. Everything is saved, and :func:`resume` continues the training.

    >>> import tempfile, torch
    >>> from types import SimpleNamespace
    >>> from steadynet import load_trained, resolve, train
    >>> images = SimpleNamespace(images=torch.rand(40, 1, 6, 6), labels=torch.arange(40) % 2)
    >>> data = SimpleNamespace(train=images, test=images, classes=("even", "odd"))
    >>> def model():
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> settings = resolve({"method": "nbc", "eps": 0.1, "epochs": 1})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(settings, f"{folder}/run", network=model(), data=data)
    ...     trained = load_trained(run.path, model())
    >>> trained.network(torch.rand(3, 1, 6, 6)).shape
    torch.Size([3, 2])
    """
    if not isinstance(settings, TrainingSettings):
        raise UserError("the settings of a training are what resolve({...}) returns: train(resolve({...}), out)")
    run = RunDirectory(Path(out))
    if network is not None:
        settings = dataclasses.replace(settings, model=networks.GIVEN)
    settings = with_onnx_network(settings)
    with join_process_group(settings.device) as group:
        group.on_rank_zero(lambda: check_place(run, settings, overwrite))
        dataset = data_sets.load(settings.data if data is None else data)
        torch.manual_seed(settings.seed)
        facts = input_facts(settings, dataset)
        network = fitting_network(network, RunConfig(settings.as_config(), facts), dataset)
        settings = with_initialisation(settings, network)
        config = RunConfig(settings.as_config(), facts)
        set_initial_weights(network, settings)
        state = assemble(settings, run, network, dataset, group)
        group.on_rank_zero(lambda: open_run(run, settings, config, overwrite))
        state.settings = dataclasses.replace(settings, sources=run.method_sources)  # whatever happens to the originals
        with following(observer, progress) as followed:
            return run_phases(state, followed)


def resume(
    out: str | Path,
    *,
    network: nn.Module | None = None,
    data: object = None,
    observer: Observer | None = None,
    progress: bool | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> RunDirectory:
    """Continue a training that was stopped or killed. A finished training is left as it is.

    The result is the weights that the training would have had without the stop: bit by bit on a CPU with the same
    number of threads.

    Args:
        out: The run directory.
        network: The network, if one was given to :func:`train`.
        data: The data set, if one was given to :func:`train`.
        observer: Who follows the training.
        progress: Whether to show a progress bar. Unless given, notebooks show one if there is no observer.
        device: Another device than before.
        threads: Another number of CPU threads than before.

    Returns:
        The run directory.

    Raises:
        UserError: ``out`` is not a run directory, or its network or data do not fit.

    >>> import tempfile
    >>> from steadynet import resolve, train
    >>> settings = resolve({"data": "digits", "method": "natural", "epochs": 1, "train_images": 64, "validation": 0.0})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(settings, f"{folder}/run")
    ...     resume(run.path) == run  # it is finished already
    True
    """
    run = RunDirectory.existing(out)
    if run.weights.is_file():
        return run
    config = run.read_config()
    machine = {"device": device, "threads": threads}
    changed = {name: value for name, value in machine.items() if value is not None}
    settings = resolve({**config.settings, **changed}, run.method_sources)
    with join_process_group(settings.device) as group:
        group.on_rank_zero(run.remove_left_overs)
        dataset = data_sets.load(settings.data if data is None else data)
        torch.manual_seed(settings.seed)
        network = fitting_network(network, config, dataset, run)
        settings = with_initialisation(settings, network)
        if not run.checkpoint.is_file():
            set_initial_weights(network, settings)
        state = assemble(settings, run, network, dataset, group)
        group.on_rank_zero(lambda: keep_sources(run, settings))
        if run.checkpoint.is_file():
            restore(state)
        with following(observer, progress) as followed:
            return run_phases(state, followed)


def run_phases(state: TrainingState, observer: Observer) -> RunDirectory:
    """Train from the current position to the end of the last phase."""
    phase_of_epoch = [phase for phase in state.settings.plan for _ in range(phase.epochs)]
    observer = observer if state.group.is_rank_zero else SilentObserver()
    observer.on_start(len(phase_of_epoch), state.batches, state.position)
    with Interruption() as interruption:
        while state.position.epoch < len(phase_of_epoch):
            _epoch(state, phase_of_epoch[state.position.epoch], observer, interruption)
    state.group.on_rank_zero(lambda: _finish(state, len(phase_of_epoch)))
    return state.run


def _finish(state: TrainingState, epochs: int) -> None:
    """Write the trained weights, which mark the run as finished, and remove the checkpoint."""
    save_tensors(state.run.weights, state.network.state_dict(), {"epochs": epochs})
    with disk_errors(state.run.checkpoint):
        state.run.checkpoint.unlink(missing_ok=True)


def _epoch(state: TrainingState, phase: Phase, observer: Observer, interruption: Interruption) -> None:
    """Train the rest of one epoch: all of its batches, or those after the position of a checkpoint."""
    settings, position = state.settings, state.position
    objective = settings.objective(phase.method)
    order = _order(len(state.images), settings.seed, position.epoch)[position.batch * settings.batch_size :]
    state.network.train()
    for images, labels in data_sets.batches(state.images, settings.batch_size, order=order, augment=state.augment):
        started, cpu_started = time.perf_counter(), time.process_time()
        # The radius of this batch: ε rises over the first epochs, as the settings say.
        share = settings.radius_share(position.epoch + (position.batch + 1) / state.batches)
        batch_slice = state.group.slice_of(len(images))
        moment = Moment(position.epoch + 1, position.epoch * state.batches + position.batch + 1)
        # The loss of the paper's training objective, E[CE − β min NBC], or of another method: a sum of named terms.
        terms = partial(state.terms, objective, images, labels, share, batch_slice)
        differentiate(state, phase, terms, batch_slice.weight, objective.perturbation(moment))
        descend(state)
        objective.after_step(state.batch(images, labels, share), moment)
        position.batch += 1
        position.seconds += time.perf_counter() - started
        position.cpu_seconds += time.process_time() - cpu_started
        observer.on_batch(position, phase, settings.eps * share)
        if state.group.any(interruption.requested) and position.batch < state.batches:
            _save_and_stop(state, phase)
    _finish_epoch(state, phase, observer)


def _order(count: int, seed: int, epoch: int) -> Tensor:
    """Return the order of the images in one epoch. It depends on the seed and the epoch alone."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))


def _save_and_stop(state: TrainingState, phase: Phase) -> None:
    """Save a checkpoint in mid-epoch, and raise the error that says how to continue."""
    check_weights(state, phase)
    save(state)
    program = "steadynet" if state.group.is_single else "torchrun … -m steadynet"
    raise InterruptedByUserError(
        f"stopped in epoch {state.position.epoch + 1} after batch {state.position.batch}; everything is saved. "
        f"Continue with: {program} train --resume --out {shlex.quote(str(state.run.path))}"
    )


def _finish_epoch(state: TrainingState, phase: Phase, observer: Observer) -> None:
    """Measure the epoch, then save a checkpoint."""
    check_weights(state, phase)
    if state.settings.batch_norm == "precise" and normalises_batches(state.network):
        pixels = (images for images, _ in data_sets.batches(state.images, state.settings.batch_size))
        torch.optim.swa_utils.update_bn(pixels, state.network, state.device)
    metrics = state.group.on_rank_zero(lambda: _measure(state, phase))
    state.position = Position(state.position.epoch + 1)
    save(state)
    if metrics:  # None in all ranks but rank 0
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
        cpu_seconds=round(position.cpu_seconds, 3),
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
