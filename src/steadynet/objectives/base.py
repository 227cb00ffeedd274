"""What a training method is: named loss terms of one batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.graph.graph import Graph
from steadynet.graph.training_graph import LiveGraph, Statistics, normalises_batches, recorded_statistics
from steadynet.networks.evaluation_mode import depends_on_mode, evaluation_mode
from steadynet.networks.preactivations import Activations, activations


@dataclass
class Batch:
    """One batch as the terms of a loss see it: what several terms need is computed once."""

    network: nn.Module
    images: Tensor
    labels: Tensor | None
    radius: float
    share: float = 1.0  # of the radius trained for: less while it rises
    live: LiveGraph | None = None  # the network's graph, kept from batch to batch
    total: Callable[[Tensor], Tensor] = lambda part: part  # makes a sum over these rows one over all processes'
    _statistics: Statistics = field(default_factory=dict, init=False)

    @cached_property
    def clean(self) -> Activations:
        """The pass on the clean images, with gradients."""
        with recorded_statistics(self.network) as self._statistics:
            return activations(self.network, self.images)

    @cached_property
    def clean_in_evaluation(self) -> Activations:
        """The same pass as an attack sees it: in evaluation mode, so that points do not influence each other."""
        if not depends_on_mode(self.network) or not self.network.training:
            return self.clean
        with evaluation_mode(self.network):
            return activations(self.network, self.images)

    @cached_property
    def graph(self) -> Graph:
        """The network as bounds see it, with gradients; batch norm by the statistics of the clean batch."""
        if normalises_batches(self.network):
            _ = self.clean  # the pass that takes them
        live = self.live or LiveGraph(self.network)
        return live.graph(tuple(self.images.shape[1:]), self._statistics)

    def logits_at(self, points: Tensor) -> Tensor:
        """f at other points, with gradients; batch norm by the statistics of the clean batch."""
        return self.graph.values(points)[-1] if normalises_batches(self.network) else self.network(points)

    @property
    def targets(self) -> Tensor:
        """The labels; an objective that needs them says so when they are missing."""
        if self.labels is None:
            raise UserError("this objective needs labels: call it as objective(network, images, labels)")
        return self.labels

    def region(self, clip: bool) -> InputRegion:
        """The ε-box around each image."""
        return InputRegion.around(self.images, self.radius, clip=clip)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a method's authors train with it, where the user does not say: ``TrainingSettings`` explains each."""

    lr: float | None = None
    schedule: Literal["constant", "one-cycle", "drops"] = "constant"
    drops: tuple[float, ...] = (0.5, 0.75)
    ramp: Literal["linear", "smooth"] = "linear"
    hold_share: float = 0.0  # of all epochs
    warmup_share: float = 0.0  # of all epochs
    gradient_clip: float = 0.0
    initialisation: Literal["default", "ibp"] = "default"


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """A training method. A subclass is one file: ``name``, ``summary``, its settings as fields, and ``terms``.

    Called like a loss of PyTorch it returns one number to minimise; in the loop its named terms are shown and summed.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    is_regulariser: ClassVar[bool] = False  # a regulariser joins another objective: ``trades+nbc``
    strength: ClassVar[str | None] = None  # the setting that ``steadynet tune`` searches; without one, the radius

    eps: float | None = None  # the radius where a call gives none

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """The settings its authors published for this data set and radius; the defaults where there are none."""
        return {}

    @classmethod
    def recipe(cls, data: str, eps: float) -> Recipe:
        """How its authors train on this data set at this radius."""
        return Recipe()

    @abstractmethod
    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """The loss terms by name, weighted: their sum is what training minimises."""

    def __call__(
        self, network: nn.Module, images: Tensor, labels: Tensor | None = None, radius: float | None = None
    ) -> Tensor:
        """The loss of one batch, ready for ``backward()``."""
        radius = self.eps if radius is None else radius
        if radius is None:
            raise UserError(f"{type(self).__name__} needs a radius: {type(self).__name__}(eps=0.1)")
        terms = self.terms(Batch(network, images, labels, radius))
        return sum(list(terms.values())[1:], start=next(iter(terms.values())))


@dataclass(frozen=True, kw_only=True)
class Combination(Objective):
    """An objective and regularisers, their terms side by side on one shared batch."""

    parts: tuple[Objective, ...]

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of all parts."""
        return {name: term for part in self.parts for name, term in part.terms(batch).items()}
