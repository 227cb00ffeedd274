"""What changes while training: put together, tried out, saved and restored, in one place."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from steadynet import data as data_sets
from steadynet.devices import pick_device
from steadynet.errors import UserError, one_line
from steadynet.graph.training_graph import LiveGraph
from steadynet.objectives import Batch, Objective
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import load_tensors, load_weights, optimiser_tensors, restore_optimiser, save_tensors
from steadynet.training.distributed.global_batch import Rows
from steadynet.training.distributed.group import Group
from steadynet.training.observer import Position
from steadynet.training.schedules import dropped
from steadynet.training.settings import TrainingSettings


@dataclass
class TrainingState:
    """A network, what trains it and how far it is."""

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
    group: Group = field(default_factory=Group)

    @property
    def batches(self) -> int:
        """Batches an epoch."""
        return data_sets.batch_count(self.images, self.settings.batch_size)

    @cached_property
    def live(self) -> LiveGraph:
        """The network's graph, for objectives that bound it."""
        return LiveGraph(self.network)

    def terms(
        self, objective: Objective, images: Tensor, labels: Tensor, share: float, rows: Rows | None = None
    ) -> dict[str, Tensor]:
        """The loss terms of one batch at this share of the radius; of these rows of it, where a group shares it."""
        radius = self.settings.eps * share
        if rows:
            images, labels = rows(images), rows(labels)
        images, labels = images.to(self.device), labels.to(self.device)
        batch = Batch(self.network, images, labels, radius, share, self.live, self.group.total_of(rows))
        amp = self.settings.amp and self.device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16, enabled=amp), self.group.seeing_all(rows):
            return objective.terms(batch)


def assemble(
    settings: TrainingSettings,
    run: RunDirectory,
    network: nn.Module,
    dataset: data_sets.Dataset,
    group: Group | None = None,
) -> TrainingState:
    """The state before the first batch; what cannot be trained is said here, before anything is written."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise UserError("the model has no weights to train")
    group = group or Group()
    device = pick_device(settings.device) if group.is_alone else group.device
    network = network.to(device)
    if any(parameter.dim() == 4 for parameter in network.parameters()):
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(network.parameters(), settings.learning_rate)
    images, validation = dataset.split(settings.validation, settings.seed)
    if settings.train_images is not None:
        images = images.subset(torch.arange(min(settings.train_images, len(images))))
    schedule = _schedule(settings, optimiser, data_sets.batch_count(images, settings.batch_size))
    state = TrainingState(
        settings, run, network, optimiser, schedule, images, validation, dataset.augment, device, Position(), group
    )
    group.check_same("the settings, the images or their order", [*_identity(settings), images.images, images.labels])
    group.share(list(network.state_dict().values()))
    _rehearse(state)
    return state


def _identity(settings: TrainingSettings) -> list[Tensor]:
    """What all processes of one training must agree on, as bytes."""
    config = dataclasses.replace(settings, device="auto", threads=None).as_config()
    return [torch.tensor(list(repr(sorted(config.items())).encode()), dtype=torch.uint8)]


def _schedule(
    settings: TrainingSettings, optimiser: torch.optim.Optimizer, batches: int
) -> torch.optim.lr_scheduler.LRScheduler | None:
    steps = settings.total_epochs * batches
    if settings.schedule == "one-cycle":
        return torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.learning_rate, total_steps=steps)
    if settings.schedule == "drops":
        drops = settings.drops or ()
        return torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: dropped(step / steps, drops))
    return None


def _rehearse(state: TrainingState) -> None:
    """Every phase's loss of one small batch, without a trace: the last phase must not fail after days of the first.

    The batch has one image if the last batch of an epoch has, which batch normalisation of features cannot take.
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
    """Everything that going on takes, as the run's checkpoint; all processes must have the same weights."""
    state.group.check_same("the weights", list(state.network.state_dict().values()))
    state.group.share_generators()
    state.group.on_first(lambda: _save(state))


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
    """The state of the run's checkpoint."""
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
