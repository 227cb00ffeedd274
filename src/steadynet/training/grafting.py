"""Graft a trained network (Chen et al., 2022): its most unstable ReLUs become learned lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.bounds import crown_bounds, graph_of
from steadynet.data import Images, batches
from steadynet.errors import UserError
from steadynet.files import write_record
from steadynet.networks import GRAFTED
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.networks.grafting import grafted_layers, with_grafted_relus
from steadynet.plugins import setting
from steadynet.runs.trained import TrainedNetwork
from steadynet.training.figures import Judge, NetworkFigures, first, new_run
from steadynet.training.fine_tuning import fine_tune, fine_tuning_settings
from steadynet.training.observer import Observer

BOUNDED_AT_ONCE = 16  # images


@dataclass(frozen=True)
class GraftSettings:
    """How a network is grafted. The defaults are those of the method's authors."""

    share: float = setting(0.5, "the share of all ReLUs to graft, at most; ReLUs that are always stable stay")
    slope: float = setting(0.4, "a, the slope of each line at the start")
    images: int = setting(100, "the number of training images on which ReLUs are bounded, by CROWN at the run's ε")
    epochs: int = setting(100, "epochs of fine-tuning with the run's method")
    lr: float = setting(1e-3, "the learning rate of the weights in fine-tuning")
    line_lr: float = setting(0.01, "the learning rate of the lines in fine-tuning")

    def __post_init__(self) -> None:
        for name, good, wanted in (
            ("share", 0 <= self.share <= 1, "must lie between 0 and 1"),
            ("slope", math.isfinite(self.slope), "must be finite"),
            ("images", self.images >= 1, "must be 1 or more"),
            ("epochs", self.epochs >= 1, "must be 1 or more"),
            ("lr", 0 < self.lr <= 1e30, "must be larger than 0"),
            ("line_lr", 0 < self.line_lr <= 1e30, "must be larger than 0"),
        ):
            if not good:
                raise UserError(f"{name} = {getattr(self, name)} {wanted}")


@dataclass(frozen=True)
class GraftedCounts:
    """How many ReLUs became lines, and of how many."""

    relus: int
    all_relus: int


@dataclass(frozen=True)
class GraftRecord:
    """What :func:`graft_run` did; ``grafting.json`` holds the same fields.

    Attributes:
        grafted: The run directory of the network that was grafted.
        settings: How it was grafted.
        lines: How many ReLUs became lines.
        before: What was measured before grafting.
        after: The same after fine-tuning.
    """

    grafted: str
    settings: GraftSettings
    lines: GraftedCounts
    before: NetworkFigures
    after: NetworkFigures


def graft_network(network: nn.Module, images: Images, eps: float, *, share: float, slope: float) -> GraftedCounts:
    """Replace the most unstable ReLUs of a network by lines, in place.

    A ReLU is the more unstable, the more images there are on whose ε-boxes CROWN bounds of its input have both signs.
    Among equals, the one whose bounds reach farther over zero is more unstable. A ReLU that is stable on all images is
    never replaced. Only ReLUs that are modules called once can be replaced.

    Args:
        network: The network.
        images: The images on which ReLUs are bounded.
        eps: The radius.
        share: The share of all ReLUs to replace, at most.
        slope: The slope of each line; it goes through the origin.

    Returns:
        How many ReLUs were replaced, and of how many.

    Raises:
        UserError: The network has no ReLU that can be replaced.

    >>> network = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    >>> _ = network[0].weight.data.fill_(1.0), network[0].bias.data.copy_(torch.tensor([-0.5, 1.0]))
    >>> images = Images(torch.tensor([[0.5]]), torch.tensor([0]))
    >>> graft_network(network, images, 0.1, share=1.0, slope=0.4), network[1].keep.tolist()
    (GraftedCounts(relus=1, all_relus=2), [0.0, 1.0])
    """
    shape = tuple(images.pixels(slice(1)).shape[1:])
    unstable, reach = _instability(network, images, eps)
    graph = graph_of(network, shape)
    names = [graph.producer(relu).name for relu in graph.relus]
    with_grafted_relus(network, shape)
    layers = grafted_layers(network)
    places = [place for place, name in enumerate(names) if name in layers]
    if not places:
        raise UserError("no ReLU can be grafted: the network has no nn.ReLU that is called once")
    all_relus = sum(layer.numel() for layer in unstable)
    count = math.floor(share * all_relus)
    chosen = _most_unstable([unstable[place] for place in places], [reach[place] for place in places], count)
    for place, mask in zip(places, chosen, strict=True):
        layers[names[place]].graft(mask, slope)
    return GraftedCounts(sum(int(mask.sum()) for mask in chosen), all_relus)


def _instability(network: nn.Module, images: Images, eps: float) -> tuple[list[Tensor], list[Tensor]]:
    """Return, per ReLU layer, on how many images each ReLU is unstable, and how far its bounds reach over zero."""
    unstable: list[Tensor] = []
    reach: list[Tensor] = []
    device = next(network.parameters()).device
    with torch.no_grad(), evaluation_mode(network):
        for pixels, _ in batches(images, BOUNDED_AT_ONCE):
            bounds = crown_bounds(network, InputRegion.around(pixels.to(device), eps))
            over = [torch.minimum(layer.upper, -layer.lower).clamp_min(0) for layer in bounds.relus]
            counts, sums = [(layer > 0).sum(0) for layer in over], [layer.sum(0) for layer in over]
            unstable = [one + other for one, other in zip(unstable, counts, strict=True)] if unstable else counts
            reach = [one + other for one, other in zip(reach, sums, strict=True)] if reach else sums
    return unstable, reach


def _most_unstable(unstable: list[Tensor], reach: list[Tensor], count: int) -> list[Tensor]:
    """Return masks of the ``count`` most unstable ReLUs of all layers together."""
    images, distances = (torch.cat([layer.flatten() for layer in layers]) for layers in (unstable, reach))
    order = distances.argsort(descending=True, stable=True)
    order = order[images[order].argsort(descending=True, stable=True)]
    mask = torch.zeros_like(images, dtype=torch.bool)
    mask[order[:count]] = True
    mask &= images > 0
    parts = mask.split([layer.numel() for layer in unstable])
    return [part.view(layer.shape) for part, layer in zip(parts, unstable, strict=True)]


def graft_run(
    trained: TrainedNetwork,
    out: str | Path,
    settings: GraftSettings | None = None,
    *,
    judge: Judge | None = None,
    observer: Observer | None = None,
) -> GraftRecord:
    """Graft a trained network, fine-tune it with the method of its run, and write it as a new run.

    Args:
        trained: The network. It is changed in place; its run directory stays as it is.
        out: The run directory to write.
        settings: How to graft.
        judge: How to measure the network before and after.
        observer: Who follows the fine-tuning, such as a progress bar.

    Returns:
        How many ReLUs were grafted, with the figures before and after.

    Raises:
        UserError: ``out`` exists, the network is grafted already, or no ReLU of it can be grafted or bounded.
        InterruptedByUserError: The user pressed Ctrl-C. ``resume`` continues the fine-tuning.
    """
    settings, judge = settings or GraftSettings(), judge or Judge()
    run, config = new_run(out), trained.config
    if grafted_layers(trained.network):
        raise UserError(f"{trained.run.path} is grafted already: graft the run that it was made from")
    tuning = fine_tuning_settings(
        config,
        epochs=settings.epochs,
        lr=settings.lr,
        sources=trained.run.method_sources,
        model=config.model + GRAFTED,
    )
    dataset = trained.data()
    before = judge.figures(trained.network, dataset, config.eps)
    images = first(dataset.split(tuning.validation, tuning.seed)[0], settings.images)
    lines = graft_network(trained.network, images, config.eps, share=settings.share, slope=settings.slope)
    fine_tune(trained, tuning, run, line_rate=settings.line_lr, observer=observer)
    after = judge.figures(trained.network, dataset, config.eps)
    record = GraftRecord(str(trained.run.path), settings, lines, before, after)
    write_record(run.grafting, record)
    return record
