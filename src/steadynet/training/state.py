"""The state of a training: assemble it, try it out, save it and restore it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from steadynet import data as data_sets
from steadynet.devices import pick_device
from steadynet.errors import UserError, one_line
from steadynet.graph.training_graph import LiveGraph
from steadynet.memory import keep_freed_memory
from steadynet.networks.grafting import grafted_layers, weight_matrices
from steadynet.objectives import Batch, Objective
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import load_tensors, load_weights, optimiser_tensors, restore_optimiser, save_tensors
from steadynet.training.distributed.global_batch import BatchSlice
from steadynet.training.distributed.process_group import ProcessGroup
from steadynet.training.observer import Position
from steadynet.training.schedules import remaining_rate
from steadynet.training.settings import TrainingSettings

LINE_RATE = 0.01  # the learning rate of the lines of grafted ReLUs, as published


@dataclass
class TrainingState:
    """Everything that a training consists of while it runs.

    Attributes:
        settings: The settings of the training.
        run: The run directory.
        network: The network that is trained.
        optimiser: The optimiser, which knows the learning rate.
        schedule: What changes the learning rate after each step; None if it is constant.
        images: The training images.
        validation: The images held out for validation.
        augment: Whether training images are shifted and mirrored at random.
        device: Where the network is.
        position: How far the training is.
        group: The processes of the training.
    """

    settings: TrainingSettings
    run: RunDirectory
    network: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler | None
    images: data_sets.Images
    validation: data_sets.Images
    augment: bool
    device: torch.device
    position: Position
    group: ProcessGroup = field(default_factory=ProcessGroup)

    @property
    def batches(self) -> int:
        """The number of batches per epoch."""
        return data_sets.batch_count(self.images, self.settings.batch_size)

    @cached_property
    def live(self) -> LiveGraph:
        """The graph of the network, for objectives that bound it."""
        return LiveGraph(self.network)

    def terms(
        self,
        objective: Objective,
        images: Tensor,
        labels: Tensor,
        share: float,
        batch_slice: BatchSlice | None = None,
    ) -> dict[str, Tensor]:
        """Compute the loss terms of one batch.

        Args:
            objective: The objective of the current phase.
            images: The images of the whole batch.
            labels: Their labels.
            share: The share of ε that is trained for now.
            batch_slice: The slice of the batch that this process computes; the whole batch unless given.

        Returns:
            The terms by name, each a mean over the slice.
        """
        if batch_slice:
            images, labels = batch_slice.take(images), batch_slice.take(labels)
        batch = self.batch(images, labels, share)
        batch.total = self.group.sum_over_batch(batch_slice)
        amp = self.settings.amp and self.device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16, enabled=amp), self.group.global_batch(batch_slice):
            return objective.terms(batch)

    def batch(self, images: Tensor, labels: Tensor, share: float) -> Batch:
        """Return images as the objective sees them, while a share of ε is trained for."""
        images, labels = images.to(self.device), labels.to(self.device)
        return Batch(self.network, images, labels, self.settings.eps * share, share, self.live)


def assemble(
    settings: TrainingSettings,
    run: RunDirectory,
    network: nn.Module,
    dataset: data_sets.Dataset,
    group: ProcessGroup | None = None,
    line_rate: float = LINE_RATE,
) -> TrainingState:
    """Assemble the state before the first batch, and try every phase on a small batch.

    Nothing is written yet, so what cannot be trained leaves no files behind. ``line_rate`` is the learning rate of the
    lines of grafted ReLUs; a checkpoint remembers it.

    Raises:
        UserError: The network has no weights, or a phase fails.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise UserError("the model has no weights to train")
    group = group or ProcessGroup()
    device = pick_device(settings.device) if group.is_single else group.device
    if device.type == "cpu":
        keep_freed_memory()
    network = network.to(device)
    if any(parameter.dim() == 4 for parameter in network.parameters()):
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if settings.keep_zeros:
        _freeze_zeros(network)
    optimiser = torch.optim.Adam(_parameter_groups(network, line_rate), settings.learning_rate)
    images, validation = dataset.split(settings.validation, settings.seed)
    if settings.train_images is not None:
        images = images.subset(torch.arange(min(settings.train_images, len(images))))
    schedule = _schedule(settings, optimiser, data_sets.batch_count(images, settings.batch_size))
    state = TrainingState(
        settings, run, network, optimiser, schedule, images, validation, dataset.augment, device, Position(), group
    )
    group.check_equal("the settings, the images or their order", [_as_bytes(settings), images.images, images.labels])
    group.broadcast(list(network.state_dict().values()))
    _try_every_phase(state)
    return state


def _freeze_zeros(network: nn.Module) -> None:
    """Give no gradient to weights that are zero, so that they stay zero."""

    def frozen(weight: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda gradient: gradient.masked_fill(weight == 0, 0.0)

    for weight in weight_matrices(network):
        weight.register_hook(frozen(weight.detach()))  # which shares the memory of the weight


def _parameter_groups(network: nn.Module, line_rate: float) -> list[dict[str, Any]]:
    """Return the weights and, with a learning rate of their own, the lines of grafted ReLUs."""
    lines = [parameter for layer in grafted_layers(network).values() for parameter in layer.parameters()]
    chosen = set(map(id, lines))
    weights = [parameter for parameter in network.parameters() if id(parameter) not in chosen]
    return [{"params": weights}, *([{"params": lines, "lr": line_rate}] if lines else [])]


def _as_bytes(settings: TrainingSettings) -> Tensor:
    """Return the settings that all processes of one training must agree on, as a tensor of bytes."""
    config = dataclasses.replace(settings, device="auto", threads=None).as_config()
    return torch.tensor(list(repr(sorted(config.items())).encode()), dtype=torch.uint8)


def _schedule(
    settings: TrainingSettings, optimiser: torch.optim.Optimizer, batches: int
) -> torch.optim.lr_scheduler.LRScheduler | None:
    """Return what changes the learning rate; None if it is constant."""
    steps = settings.total_epochs * batches
    if settings.schedule == "one-cycle":
        rates = [group["lr"] for group in optimiser.param_groups]
        return torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps)
    if settings.schedule == "drops":
        drops = settings.drops or ()
        return torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: remaining_rate(step / steps, drops))
    return None


def _try_every_phase(state: TrainingState) -> None:
    """Compute the loss of every phase on a small batch, so that a later phase cannot fail after days of training.

    The network and the random generators are left as they were. The batch has one image if the last batch of an epoch
    has one, because batch norm of features cannot normalise a single image.

    Raises:
        UserError: A phase fails.
    """
    settings = state.settings
    last = len(state.images) % settings.batch_size or settings.batch_size
    few = state.images.subset(torch.arange(min(last, 2, len(state.images))))
    before = {name: value.clone() for name, value in state.network.state_dict().items()}
    state.network.train()
    for phase in settings.plan:
        objective = settings.objective(phase.method)
        try:
            with torch.random.fork_rng([state.device] if state.device.type == "cuda" else []):
                for images, labels in data_sets.batches(few, settings.batch_size, augment=state.augment):
                    state.terms(objective, images, labels, 1.0)
        except UserError:
            raise
        except Exception as error:  # whatever the user's own network raises
            what = f"{len(few)} image{'s' * (len(few) > 1)}"
            raise UserError(f"{phase.method} fails on a batch of {what}: {one_line(error)}") from error
    state.network.load_state_dict(before)


def save(state: TrainingState) -> None:
    """Write the run's checkpoint, with everything that is needed to continue.

    Raises:
        UserError: The processes of the training do not have the same weights.
    """
    state.group.check_equal("the weights", list(state.network.state_dict().values()))
    state.group.broadcast_generators()
    state.group.on_rank_zero(lambda: _save(state))


def _save(state: TrainingState) -> None:
    tensors = {f"network.{name}": value for name, value in state.network.state_dict().items()}
    tensors |= optimiser_tensors(state.optimiser)
    tensors["generator.cpu"] = torch.get_rng_state()
    if state.device.type == "cuda":
        tensors["generator.cuda"] = torch.cuda.get_rng_state(state.device)
    facts = {
        "position": dataclasses.asdict(state.position),
        "groups": state.optimiser.state_dict()["param_groups"],
        "schedule": state.schedule.state_dict() if state.schedule else None,
    }
    save_tensors(state.run.checkpoint, tensors, facts)


def restore(state: TrainingState) -> None:
    """Read the run's checkpoint into the state."""
    tensors, facts = load_tensors(state.run.checkpoint)
    weights = {name.removeprefix("network."): tensors[name] for name in tensors if name.startswith("network.")}
    load_weights(state.network, weights, state.run.checkpoint)
    restore_optimiser(state.optimiser, tensors, facts["groups"])
    if state.schedule:
        state.schedule.load_state_dict(facts["schedule"])
    torch.set_rng_state(tensors["generator.cpu"])
    if "generator.cuda" in tensors and state.device.type == "cuda":
        torch.cuda.set_rng_state(tensors["generator.cuda"], state.device)
    state.position = Position(**facts["position"])
