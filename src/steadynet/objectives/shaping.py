"""What bias shaping and stable pruning share: bounds of single neurons over a batch, at times during the training."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steadynet.bounds.center_radius import propagate_balls
from steadynet.errors import UserError
from steadynet.graph.feeding_layer import feeding_layer
from steadynet.graph.operations import Convolution, Dense, Interval
from steadynet.graph.translate import graph_of
from steadynet.objectives.base import Batch, Moment, Objective
from steadynet.plugins import setting


class BoundedLayer(NamedTuple):
    """A layer that feeds ReLUs, with interval bounds of its neurons for each image of a batch.

    Attributes:
        layer: The layer, with the network's own parameters.
        lower: (batch, neurons). A channel of a convolution is one neuron: its smallest bound over all positions.
        upper: (batch, neurons), likewise the largest bound.
    """

    layer: Dense | Convolution
    lower: Tensor
    upper: Tensor


@dataclass(frozen=True, kw_only=True)
class ShapingObjective(Objective):
    """Base class of regularisers without a loss term that change neurons in place, every few batches."""

    is_regulariser = True

    pace: int = setting(50, "change neurons after so many batches, again and again")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pace < 1:
            raise UserError(f"pace = {self.pace}: this is 1 or more")

    @property
    @abstractmethod
    def last_epoch(self) -> int:
        """The last epoch in which neurons are changed."""

    @abstractmethod
    def change(self, bounded: BoundedLayer) -> None:
        """Change the neurons of one layer in place."""

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Return no term of its own."""
        return {}

    def after_step(self, batch: Batch, moment: Moment) -> None:
        """Change the layers one after the other; each is bounded after those before it were changed."""
        if moment.epoch <= self.last_epoch and moment.step % self.pace == 0:
            with torch.no_grad():
                for bounded in _bounded_layers(batch):
                    self.change(bounded)


def _bounded_layers(batch: Batch) -> Iterator[BoundedLayer]:
    """Iterate over the layers that feed ReLUs alone. Bounds are those of the weights at the time."""
    graph = graph_of(batch.network, tuple(batch.images.shape[1:]))
    region = batch.region(clip=True)
    for relu in graph.relus:
        layer = feeding_layer(graph, relu)
        if layer is not None:
            part = graph.up_to(graph.source(relu))
            lower, upper = propagate_balls(part, Interval(region.lower, region.upper))[-1].interval
            channels = (len(lower), layer.weight.shape[0], -1)
            if isinstance(layer, Convolution):
                yield BoundedLayer(layer, lower.reshape(channels).amin(2), upper.reshape(channels).amax(2))
            elif lower.dim() == 2:
                yield BoundedLayer(layer, lower, upper)
