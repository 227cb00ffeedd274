"""The base class of training methods, and the batch that their loss terms are computed from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.graph.graph import Graph
from steadynet.graph.training_graph import LiveGraph, Statistics, normalises_batches, recorded_statistics
from steadynet.networks.evaluation_mode import depends_on_mode, evaluation_mode
from steadynet.networks.preactivations import Activations, activations
from steadynet.plugins.settings import check_types


@dataclass
class Batch:
    """One batch of images, as the loss terms of an objective see it.

    Everything that several terms need is computed once, when it is first used.

    Args:
        network: The network.
        images: The images x, (batch, *image), with pixels in [0, 1].
        labels: Their labels y, (batch,); None for objectives that need no labels.
        radius: The radius that is trained for now.
        share: The radius as a share of the one trained for in the end: less than 1 while it rises.
        live: The graph of the network, kept from batch to batch. Unless given, the network is traced for this batch.
        total: Turns a sum over these images into the sum over the whole batch, if several processes share the batch.
            A term that is not a plain mean over images must sum through it.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> batch = Batch(model, torch.rand(3, 4), torch.tensor([0, 1, 0]), radius=0.1)
    >>> batch.clean.logits.shape, [layer.shape for layer in batch.clean.preactivations]
    (torch.Size([3, 2]), [torch.Size([3, 8])])
    """

    network: nn.Module
    images: Tensor
    labels: Tensor | None
    radius: float
    share: float = 1.0
    live: LiveGraph | None = None
    total: Callable[[Tensor], Tensor] = lambda part: part
    _statistics: Statistics = field(default_factory=dict, init=False)

    @cached_property
    def clean(self) -> Activations:
        """The forward pass at the clean images, with gradients: logits and ReLU inputs."""
        with recorded_statistics(self.network) as self._statistics:
            return activations(self.network, self.images)

    @cached_property
    def clean_in_evaluation(self) -> Activations:
        """The forward pass at the clean images in evaluation mode, where images do not influence each other.

        Attacks use it. For a network that does not depend on its mode, it is ``clean``.
        """
        if not depends_on_mode(self.network) or not self.network.training:
            return self.clean
        with evaluation_mode(self.network):
            return activations(self.network, self.images)

    @cached_property
    def graph(self) -> Graph:
        """The graph of the network, to compute bounds with gradients.

        Batch norms in training mode use the statistics of the clean images.
        """
        if normalises_batches(self.network):
            _ = self.clean  # the forward pass that records the statistics
        live = self.live or LiveGraph(self.network)
        return live.graph(tuple(self.images.shape[1:]), self._statistics)

    def logits_at(self, points: Tensor) -> Tensor:
        """Compute the logits at other points, with gradients.

        Batch norms in training mode use the statistics of the clean images.
        """
        return self.graph.values(points)[-1] if normalises_batches(self.network) else self.network(points)

    @property
    def targets(self) -> Tensor:
        """The labels.

        Raises:
            UserError: There are none.
        """
        if self.labels is None:
            raise UserError("this objective needs labels: call it as objective(network, images, labels)")
        return self.labels

    def region(self, clip: bool) -> InputRegion:
        """Return the region around each image: all inputs within ``radius``; with ``clip``, inside [0, 1]."""
        return InputRegion.around(self.images, self.radius, clip=clip)


class Moment(NamedTuple):
    """Where a training is.

    Attributes:
        epoch: The number of the epoch; the first is 1.
        step: How many steps the optimiser has taken in all epochs.
    """

    epoch: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the authors of a method train with it, for the settings that the user does not give.

    ``TrainingSettings`` explains each field that is not listed here.

    Attributes:
        short_below: A training of fewer epochs has the schedule ``one-cycle``. Rates that fall late in a long training
            leave a short one with too few steps at each rate.
        one_cycle_lr: The learning rate of the schedule ``one-cycle``; ``lr`` unless given.
        hold_share: The setting ``hold`` as a share of all epochs.
        warmup_share: The setting ``warmup`` as a share of all epochs.

    >>> recipe = Recipe(lr=5e-4, schedule="drops", short_below=80, one_cycle_lr=2e-3)
    >>> [(recipe.schedule_for(epochs), recipe.lr_for(recipe.schedule_for(epochs))) for epochs in (20, 160)]
    [('one-cycle', 0.002), ('drops', 0.0005)]
    """

    lr: float | None = None
    schedule: Literal["constant", "one-cycle", "drops"] = "constant"
    drops: tuple[float, ...] = (0.5, 0.75)
    ramp: Literal["linear", "smooth"] = "linear"
    hold_share: float = 0.0
    warmup_share: float = 0.0
    gradient_clip: float = 0.0
    initialisation: Literal["default", "ibp", "auto"] = "default"
    batch_norm: Literal["running", "precise"] = "running"
    short_below: int = 0
    one_cycle_lr: float | None = None

    def schedule_for(self, epochs: int) -> str:
        """Return the schedule of a training of so many epochs."""
        return "one-cycle" if epochs < self.short_below else self.schedule

    def lr_for(self, schedule: str) -> float | None:
        """Return the learning rate that goes with a schedule; None if the method has no rate of its own."""
        return self.one_cycle_lr if schedule == "one-cycle" and self.one_cycle_lr is not None else self.lr


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """Base class of training methods. A method is one file: a subclass with ``name``, ``summary`` and ``terms``.

    The fields that a subclass declares with :func:`~steadynet.plugins.setting` are its settings. The training loop
    shows the named terms and minimises their sum. Called like a loss of PyTorch, an objective returns that sum.

    Args:
        eps: The radius for calls that give none.

    Attributes:
        name: What users call the method.
        summary: What it minimises, in a few words.
        is_regulariser: Whether it joins another objective, as ``nbc`` does in ``trades+nbc``.
        strength: The name of the setting that ``steadynet tune`` searches; if None, it searches the radius.

    >>> import torch
    >>> from steadynet.objectives import build
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> objective = build("trades+nbc", {"nbc": {"beta": 2.0}})
    >>> loss = objective(model, torch.rand(3, 4), torch.tensor([0, 1, 0]), radius=0.1)
    >>> loss.backward()
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    is_regulariser: ClassVar[bool] = False
    strength: ClassVar[str | None] = None

    eps: float | None = None

    def __post_init__(self) -> None:
        """Check the settings. A subclass that checks more calls this first."""
        check_types(self)
        eps: Any = self.eps  # a user may give anything
        if eps is not None and not (isinstance(eps, Real) and 0 <= float(eps) < math.inf):
            raise UserError(f"{type(self).__name__}: eps = {eps!r}: a radius is a number, such as 0.1 or 8 / 255")
        if eps is not None and float(eps) > 1 and getattr(self, "clip", True):
            raise UserError(
                f"{type(self).__name__}: eps = {eps} is too large: pixels lie in [0, 1], so write 8 / 255 for 8 "
                "grey levels; clip=False takes images that are normalised"
            )

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return the settings that its authors published for a data set and radius, where they are not the defaults."""
        return {}

    @classmethod
    def completed(cls, given: Mapping[str, Any], data: str, eps: float) -> dict[str, Any]:
        """Return the settings that a user gives, with those that the authors published for all others."""
        return {**cls.published(data, eps), **given}

    @classmethod
    def recipe(cls, data: str, eps: float) -> Recipe:
        """Return how its authors train on a data set at a radius."""
        return Recipe()

    @abstractmethod
    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the loss terms of one batch.

        Returns:
            The terms by name, each already weighted. Training minimises their sum.
        """

    def perturbation(self, moment: Moment) -> float:
        """Return how far weights move against the loss before its gradient is taken, as a share of their size.

        The training loop does this (see :mod:`steadynet.training.weight_perturbation`). 0 is plain training.
        """
        return 0.0

    def after_step(self, batch: Batch, moment: Moment) -> None:  # noqa: B027 - most methods change nothing here
        """Change the network's weights in place after a step of the optimiser.

        Args:
            batch: The whole batch of the step; in a training of several processes, each of them has it whole.
            moment: Where the training is, this step included.
        """

    def __call__(
        self, network: nn.Module, images: Tensor, labels: Tensor | None = None, radius: float | None = None
    ) -> Tensor:
        """Compute the loss of one batch, ready for ``backward()``.

        Args:
            network: The network.
            images: The images, (batch, *image), with pixels in [0, 1].
            labels: Their labels, (batch,), if the objective needs them.
            radius: The radius to train for; ``eps`` unless given.

        Raises:
            UserError: The radius or the labels are missing.
        """
        radius = self.eps if radius is None else radius
        if radius is None:
            raise UserError(f"{type(self).__name__} needs a radius: {type(self).__name__}(eps=0.1)")
        terms = self.terms(Batch(network, images, labels, radius))
        return sum(list(terms.values())[1:], start=next(iter(terms.values())))


@dataclass(frozen=True, kw_only=True)
class Combination(Objective):
    """An objective joined with regularisers, such as ``trades+nbc``. All parts share one batch."""

    parts: tuple[Objective, ...]

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the terms of all parts."""
        return {name: term for part in self.parts for name, term in part.terms(batch).items()}

    def perturbation(self, moment: Moment) -> float:
        """Return the largest perturbation of a part."""
        return max(part.perturbation(moment) for part in self.parts)

    def after_step(self, batch: Batch, moment: Moment) -> None:
        """Let every part change the weights."""
        for part in self.parts:
            part.after_step(batch, moment)
