"""Prune a trained network (Xiao et al., 2019): set small weights and rarely active ReLUs to zero."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from steadynet.bounds import graph_of
from steadynet.data import Images, batches
from steadynet.errors import UserError
from steadynet.files import write_record
from steadynet.graph.feeding_layer import feeding_layer
from steadynet.graph.graph import Graph
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.networks.grafting import weight_matrices
from steadynet.plugins import setting
from steadynet.runs.tensors import save_tensors
from steadynet.runs.trained import TrainedNetwork
from steadynet.training.figures import Judge, NetworkFigures, copy_sources, new_run
from steadynet.training.fine_tuning import fine_tune, fine_tuning_settings
from steadynet.training.hydra import HydraSettings, learn_mask
from steadynet.training.observer import Observer


@dataclass(frozen=True)
class PruningThresholds:
    """What is small enough to be set to zero."""

    weights: float = setting(1e-3, "set weights whose absolute value is smaller than this to zero")
    relus: float = setting(0.1, "remove ReLUs that are active on at most this share of the training images")

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value <= 1:
                raise UserError(f"{name} = {value} must lie between 0 and 1")


@dataclass(frozen=True)
class PrunedCounts:
    """How many weights and ReLUs were set to zero, and of how many."""

    weights: int
    all_weights: int
    relus: int = 0
    all_relus: int = 0


@dataclass(frozen=True)
class PruningRecord:
    """What :func:`prune_run` or :func:`prune_run_by_scores` did; ``pruning.json`` holds the same fields.

    Attributes:
        pruned: The run directory of the network that was pruned.
        thresholds: What was small enough to be set to zero; None if scores were learned.
        zeroed: How much was set to zero.
        before: What was measured before pruning.
        after: The same after pruning.
        hydra: How scores were learned; None if thresholds decided.
    """

    pruned: str
    thresholds: PruningThresholds | None
    zeroed: PrunedCounts
    before: NetworkFigures
    after: NetworkFigures
    hydra: HydraSettings | None = None


def prune_network(network: nn.Module, images: Images, *, weights: float, relus: float) -> PrunedCounts:
    """Set small weights and rarely active ReLUs of a network to zero, in place.

    A ReLU is removed by zeroing the weights and the bias of the layer that feeds it. The ReLUs of one channel of a
    convolution share their weights, so a channel is removed if all of its ReLUs are rarely active. A ReLU stays if
    another node reads the layer that feeds it, or if another layer has the same weights.

    Args:
        network: The network.
        images: The images on which activity is measured.
        weights: Weights of smaller absolute value become zero.
        relus: ReLUs that are active on at most this share of the images are removed.

    Returns:
        How much was set to zero.
    """
    matrices = weight_matrices(network)
    small = sum(_zero(parameter, parameter.abs() < weights) for parameter in matrices)
    graph = graph_of(network, tuple(images.pixels(slice(1)).shape[1:]))
    removed = 0
    active = _active_shares(network, graph, images)
    for relu, share in active.items():
        feeding = feeding_layer(graph, relu)
        if feeding is None or share.dim() != feeding.weight.dim() - 1:  # one axis of the weights is the layer's input
            continue
        rare = (share <= relus).flatten(1).all(1) if share.dim() > 1 else share <= relus
        _zero(feeding.weight, rare.view(-1, *[1] * (feeding.weight.dim() - 1)).expand_as(feeding.weight))
        if feeding.bias is not None:
            _zero(feeding.bias, rare)
        removed += int(rare.sum()) * share[0].numel()
    return PrunedCounts(
        weights=small,
        all_weights=sum(parameter.numel() for parameter in matrices),
        relus=removed,
        all_relus=sum(share.numel() for share in active.values()),
    )


def _zero(parameter: Tensor, where: Tensor) -> int:
    """Set the chosen entries to zero, and count those that were not zero before."""
    with torch.no_grad():
        changed = int((where & (parameter != 0)).sum())
        parameter[where] = 0.0
    return changed


def _active_shares(network: nn.Module, graph: Graph, images: Images) -> dict[int, Tensor]:
    """Return the share of images on which each ReLU is active, by the position of its layer in the graph."""
    counts: dict[int, Tensor] = {}
    device = next(network.parameters()).device
    with torch.no_grad(), evaluation_mode(network):
        for pixels, _ in batches(images, 512):
            values = graph.values(pixels.to(device))
            for relu in graph.relus:
                active = (values[graph.source(relu)] > 0).sum(0)
                counts[relu] = counts[relu] + active if relu in counts else active
    return {relu: count / len(images) for relu, count in counts.items()}


def prune_run(
    trained: TrainedNetwork, out: str | Path, *, weights: float, relus: float, judge: Judge | None = None
) -> PruningRecord:
    """Prune a trained network and write it as a new run.

    Activity is measured on the training images, the figures before and after on the test images.

    Args:
        trained: The network. It is changed in place; its run directory stays as it is.
        out: The run directory to write.
        weights: Weights of smaller absolute value become zero.
        relus: ReLUs that are active on at most this share of the training images are removed.
        judge: How to measure the network before and after.

    Returns:
        What was set to zero, with the figures before and after.

    Raises:
        UserError: ``out`` exists, or a threshold does not lie between 0 and 1.
    """
    thresholds, judge = PruningThresholds(weights, relus), judge or Judge()
    run, dataset, eps = new_run(out), trained.data(), trained.config.eps
    before = judge.figures(trained.network, dataset, eps)
    zeroed = prune_network(trained.network, dataset.train, weights=weights, relus=relus)
    after = judge.figures(trained.network, dataset, eps)
    record = PruningRecord(str(trained.run.path), thresholds, zeroed, before, after)
    run.write_config(trained.config)
    copy_sources(trained, run)
    write_record(run.pruning, record)
    save_tensors(run.weights, trained.network.state_dict(), {"pruned": asdict(thresholds)})
    return record


def prune_run_by_scores(
    trained: TrainedNetwork,
    out: str | Path,
    settings: HydraSettings | None = None,
    *,
    judge: Judge | None = None,
    observer: Observer | None = None,
) -> PruningRecord:
    """Prune a trained network by learned scores (hydra), fine-tune what is left, and write it as a new run.

    Args:
        trained: The network. It is changed in place; its run directory stays as it is.
        out: The run directory to write.
        settings: How to prune.
        judge: How to measure the network before and after.
        observer: Who follows both trainings, of the scores and of the weights that stay.

    Returns:
        What was set to zero, with the figures before and after.

    Raises:
        UserError: ``out`` exists.
        InterruptedByUserError: The user pressed Ctrl-C. ``resume`` continues the fine-tuning.
    """
    settings, judge = settings or HydraSettings(), judge or Judge()
    run, dataset, eps = new_run(out), trained.data(), trained.config.eps
    tuning = fine_tuning_settings(
        trained.config,
        epochs=settings.epochs,
        lr=settings.lr,
        sources=trained.run.method_sources,
        keep_zeros=True,
    )
    before = judge.figures(trained.network, dataset, eps)
    zeroed = learn_mask(trained, settings, observer)
    fine_tune(trained, tuning, run, observer=observer)
    after = judge.figures(trained.network, dataset, eps)
    counts = PrunedCounts(zeroed, sum(weight.numel() for weight in weight_matrices(trained.network)))
    record = PruningRecord(str(trained.run.path), None, counts, before, after, settings)
    write_record(run.pruning, record)
    return record
