"""Pruning after training (Xiao et al., 2019): small weights, and ReLUs that are almost never active, become zero."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from steadynet.bounds import graph_of
from steadynet.data import Dataset, Images, batches
from steadynet.errors import UserError
from steadynet.files import write_atomically, write_json, write_toml
from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Convolution, Dense
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy, interval_stable_share
from steadynet.runs.tensors import save_tensors
from steadynet.runs.trained import TrainedNetwork


class Pruned(NamedTuple):
    """How much of a network was set to zero."""

    weights: int
    all_weights: int
    relus: int
    all_relus: int


def prune_network(network: nn.Module, images: Images, *, weights: float, relus: float) -> Pruned:
    """Set to zero, in place, weights below ``weights`` and ReLUs active on at most a share ``relus`` of the images.

    A ReLU goes by zeroing the weights and the bias that feed it. Those of a convolution share theirs, so a channel goes
    when all of its ReLUs are almost never active. ReLUs fed by anything else than a layer of their own stay.
    """
    matrices = [parameter for parameter in network.parameters() if parameter.dim() > 1]
    small = sum(_zero(parameter, parameter.abs() < weights) for parameter in matrices)
    graph = graph_of(network, tuple(images.pixels(slice(1)).shape[1:]))
    gone = 0
    active = _active_shares(network, graph, images)
    for relu, share in active.items():
        feeding = _own_layer(graph, relu)
        if feeding is None or share.dim() != feeding.weight.dim() - 1:  # one axis of a layer is its inputs
            continue
        rare = (share <= relus).flatten(1).all(1) if share.dim() > 1 else share <= relus
        _zero(feeding.weight, rare.view(-1, *[1] * (feeding.weight.dim() - 1)).expand_as(feeding.weight))
        if feeding.bias is not None:
            _zero(feeding.bias, rare)
        gone += int(rare.sum()) * share[0].numel()
    return Pruned(
        small,
        sum(parameter.numel() for parameter in matrices),
        gone,
        sum(share.numel() for share in active.values()),
    )


def _zero(parameter: Tensor, where: Tensor) -> int:
    """Set to zero what is not; how many that were."""
    with torch.no_grad():
        changed = int((where & (parameter != 0)).sum())
        parameter[where] = 0.0
    return changed


def _active_shares(network: nn.Module, graph: Graph, images: Images) -> dict[int, Tensor]:
    """On which share of the images each ReLU is active, by the position of its layer in the graph."""
    counts: dict[int, Tensor] = {}
    device = next(network.parameters()).device
    with torch.no_grad(), evaluation_mode(network):
        for pixels, _ in batches(images, 512):
            values = graph.values(pixels.to(device))
            for relu in graph.relus:
                active = (values[graph.source(relu)] > 0).sum(0)
                counts[relu] = counts[relu] + active if relu in counts else active
    return {relu: count / len(images) for relu, count in counts.items()}


def _own_layer(graph: Graph, relu: int) -> Dense | Convolution | None:
    """The layer that feeds a ReLU and nothing else, with weights that no other layer has."""
    source = graph.source(relu)
    if source == 0 or sum(source in node.inputs for node in graph.nodes) > 1:
        return None
    operation = graph.producer(source).operation
    if not isinstance(operation, (Dense, Convolution)) or not isinstance(operation.weight, nn.Parameter):
        return None
    return operation if sum(_shares(node, operation.weight) for node in graph.nodes) == 1 else None


def _shares(node: Node, weight: Tensor) -> bool:
    return isinstance(node.operation, (Dense, Convolution)) and node.operation.weight is weight


def prune_run(trained: TrainedNetwork, out: str | Path, *, weights: float, relus: float) -> dict[str, Any]:
    """Prune a trained network into a new run; what it took away, and accuracy and stable share before and after.

    Activity is measured on the training images, accuracy and stable share on the test images.
    """
    for name, value in (("weights", weights), ("relus", relus)):
        if not 0 <= value <= 1:
            raise UserError(f"{name} = {value} must lie between 0 and 1")
    run = RunDirectory(Path(out))
    if not run.is_free():
        raise UserError(f"{run.path} exists: choose another --out")
    dataset = trained.data()
    before = _figures(trained, dataset)
    pruned = prune_network(trained.network, dataset.train, weights=weights, relus=relus)
    result = {
        "pruned": str(trained.run.path),
        "thresholds": {"weights": weights, "relus": relus},
        "zeroed": pruned._asdict(),
        "before": before,
        "after": _figures(trained, dataset),
    }
    write_toml(run.config, trained.config)
    if trained.run.model_source.is_file():
        write_atomically(run.model_source, lambda temporary: shutil.copyfile(trained.run.model_source, temporary))
    write_json(run.pruning, result)
    save_tensors(run.weights, trained.network.state_dict(), {"pruned": result["thresholds"]})
    return result


def _figures(trained: TrainedNetwork, dataset: Dataset) -> dict[str, Any]:
    eps = float(trained.config["eps"])
    return {
        "accuracy": accuracy(trained.network, dataset.test),
        "eps": eps,
        "stable_share_ibp": interval_stable_share(trained.network, dataset.test, eps),
    }
