"""Sparsify the dense layers of a trained network by linear programs (Baninajjar et al.), one layer after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from steadynet.bounds import graph_of
from steadynet.data import Dataset, Images
from steadynet.errors import UserError
from steadynet.files import write_record
from steadynet.graph.feeding_layer import feeding_layer
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Dense
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.networks.grafting import weight_matrices
from steadynet.plugins import setting
from steadynet.runs.config import RunConfig
from steadynet.runs.tensors import save_tensors
from steadynet.runs.trained import TrainedNetwork
from steadynet.training.figures import Judge, NetworkFigures, copy_sources, first, new_run
from steadynet.training.sparse_layers import Array, same_leads, same_state, sparsest

OnRow = Callable[[str, int, int], None]  # (layer, rows done, rows of the layer)


@dataclass(frozen=True)
class SparsifySettings:
    """How a network is sparsified."""

    images: int = setting(200, "the number of validation images on which neurons keep their state; more is slower")
    delta: float = setting(0.1, "δ: an active neuron stays within (1 ± δ) of its value on each image")
    margin: float = setting(0.5, "the share of its lead over other classes that the label keeps on each image")
    row_timeout: float = setting(60.0, "seconds for each linear program; a row that needs longer stays as it is")

    def __post_init__(self) -> None:
        for name, good, wanted in (
            ("images", self.images >= 1, "must be 1 or more"),
            ("delta", 0 <= self.delta < 1, "must be 0 or more, and less than 1"),
            ("margin", 0 < self.margin <= 1, "must be larger than 0 and at most 1"),
            ("row_timeout", 0 < self.row_timeout < float("inf"), "must be larger than 0"),
        ):
            if not good:
                raise UserError(f"{name} = {getattr(self, name)} {wanted}")


@dataclass(frozen=True)
class SparsifiedLayer:
    """What became of one dense layer.

    Attributes:
        name: The layer.
        rows: How many neurons it has.
        changed: For how many of them a solution was found; the others stay as they were.
        weights: How many weights and biases it has.
        before: How many of them were not zero before.
        after: How many of them are not zero now.
    """

    name: str
    rows: int
    changed: int
    weights: int
    before: int
    after: int


@dataclass(frozen=True)
class SparsificationRecord:
    """What :func:`sparsify_run` did; ``sparsification.json`` holds the same fields.

    Attributes:
        sparsified: The run directory of the network that was sparsified.
        settings: How it was sparsified.
        images: How many images were used: of those asked for, the ones that the network classifies correctly.
        layers: The dense layers.
        left: The names of the layers with weights that stay as they are, such as convolutions.
        before: What was measured before.
        after: The same afterwards.
    """

    sparsified: str
    settings: SparsifySettings
    images: int
    layers: tuple[SparsifiedLayer, ...]
    left: tuple[str, ...]
    before: NetworkFigures
    after: NetworkFigures


def sparsify_network(
    network: nn.Module,
    images: Images,
    settings: SparsifySettings,
    on_row: OnRow = lambda layer, done, rows: None,
) -> tuple[list[SparsifiedLayer], list[str]]:
    """Minimise ‖W‖₁ + ‖b‖₁ of each dense layer, in place, such that the network does nearly the same on some images.

    A neuron of a layer that feeds a ReLU keeps its state on every image, and its value up to (1 ± δ). In the last
    layer, the label keeps a share of its lead. The inputs of a layer are those of the network as it is so far, and the
    values to keep are those before any change.

    Args:
        network: The network.
        images: The images, all of which it classifies correctly.
        settings: How to sparsify.
        on_row: Called after each linear program, for a progress bar.

    Returns:
        What became of each dense layer, and the names of the other layers with weights.
    """
    with torch.no_grad(), evaluation_mode(network):
        pixels = images.pixels()
        graph = graph_of(network, tuple(pixels.shape[1:]))
        values = graph.values(pixels)
        layers = _dense_layers(graph, values)
        done = []
        for place, layer in layers.items():
            kept = _ToKeep(graph.values(pixels)[graph.source(place)], values[place], images.labels)
            done.append(
                _sparsify_layer(graph.producer(place).name, layer, kept, place == graph.output, settings, on_row)
            )
    found = {id(layer.weight) for layer in layers.values()}
    others = {id(weight) for weight in weight_matrices(network)} - found
    return done, [name.removesuffix(".weight") for name, value in network.named_parameters() if id(value) in others]


def _dense_layers(graph: Graph, values: list[Tensor]) -> dict[int, Dense]:
    """Return the dense layers that feed a ReLU and nothing else, and the last layer if it is dense, by position."""
    feeding = {graph.source(relu): feeding_layer(graph, relu) for relu in graph.relus}
    layers = {place: layer for place, layer in feeding.items() if isinstance(layer, Dense)}
    last = graph.producer(graph.output).operation
    if isinstance(last, Dense) and isinstance(last.weight, nn.Parameter):
        users = [
            node for node in graph.nodes if isinstance(node.operation, Dense) and node.operation.weight is last.weight
        ]
        layers |= {graph.output: last} if len(users) == 1 else {}
    return {place: layer for place, layer in layers.items() if values[graph.source(place)].dim() == 2}


@dataclass(frozen=True)
class _ToKeep:
    """What a layer must keep: its inputs now, its values before any change, and the labels."""

    inputs: Tensor
    values: Tensor
    labels: Tensor


def _sparsify_layer(
    name: str, layer: Dense, kept: _ToKeep, is_last: bool, settings: SparsifySettings, on_row: OnRow
) -> SparsifiedLayer:
    """Solve the linear programs of one dense layer: one per neuron, or one for all neurons of the last layer."""
    inputs, values = kept.inputs.double().numpy(), kept.values.double().numpy()
    if layer.bias is not None:
        inputs = np.hstack([inputs, np.ones((len(inputs), 1))])  # the bias is the weight of an input that is 1
    before, rows, changed = _nonzero(layer), len(layer.weight), 0
    if is_last:
        constraints = same_leads(inputs, values, kept.labels.numpy(), settings.margin)
        found = sparsest(constraints, settings.row_timeout * rows)
        if found is not None:
            for row, weights in enumerate(found.reshape(rows, -1)):
                _replace(layer, row, weights)
            changed = rows
        on_row(name, rows, rows)
    else:
        for row in range(rows):
            found = sparsest(same_state(inputs, values[:, row], settings.delta), settings.row_timeout)
            if found is not None:
                _replace(layer, row, found)
                changed += 1
            on_row(name, row + 1, rows)
    size = layer.weight.numel() + (0 if layer.bias is None else layer.bias.numel())
    return SparsifiedLayer(name, rows, changed, size, before, _nonzero(layer))


def _replace(layer: Dense, row: int, found: Array) -> None:
    """Write the weights and the bias of one neuron."""
    width = layer.weight.shape[1]
    layer.weight[row] = torch.from_numpy(found[:width]).to(layer.weight)
    if layer.bias is not None:
        layer.bias[row] = float(found[width])


def _nonzero(layer: Dense) -> int:
    return int((layer.weight != 0).sum()) + (0 if layer.bias is None else int((layer.bias != 0).sum()))


def sparsify_run(
    trained: TrainedNetwork,
    out: str | Path,
    settings: SparsifySettings | None = None,
    *,
    judge: Judge | None = None,
    on_row: OnRow = lambda layer, done, rows: None,
) -> SparsificationRecord:
    """Sparsify the dense layers of a trained network and write it as a new run.

    The images are the first validation images of the run, or training images if it has none.

    Args:
        trained: The network. It is changed in place; its run directory stays as it is.
        out: The run directory to write.
        settings: How to sparsify.
        judge: How to measure the network before and after.
        on_row: Called after each linear program, for a progress bar.

    Returns:
        What became of each layer, with the figures before and after.

    Raises:
        UserError: ``out`` exists, the network has no dense layer, or classifies none of the images correctly.
    """
    settings, judge = settings or SparsifySettings(), judge or Judge()
    run, dataset, eps = new_run(out), trained.data(), trained.config.eps
    before = judge.figures(trained.network, dataset, eps)
    images = _correct_images(trained.network, _validation_images(trained.config, dataset), settings.images)
    layers, left = sparsify_network(trained.network, images, settings, on_row)
    if not layers:
        raise UserError(f"{trained.run.path} has no dense layer that feeds ReLUs or is the last: nothing to sparsify")
    after = judge.figures(trained.network, dataset, eps)
    record = SparsificationRecord(
        str(trained.run.path), settings, len(images), tuple(layers), tuple(left), before, after
    )
    run.write_config(trained.config)
    copy_sources(trained, run)
    write_record(run.sparsification, record)
    save_tensors(run.weights, trained.network.state_dict(), {"sparsified": asdict(settings)})
    return record


def _validation_images(config: RunConfig, dataset: Dataset) -> Images:
    images, validation = dataset.split(config.settings.get("validation", 0.1), config.seed)
    return validation if len(validation) else images


def _correct_images(network: nn.Module, images: Images, count: int) -> Images:
    """Return those of the first images that the network classifies correctly."""
    chosen = first(images, count)
    with torch.no_grad(), evaluation_mode(network):
        right = network(chosen.pixels()).argmax(1) == chosen.labels
    if not right.any():
        raise UserError("the network classifies none of the images correctly: nothing to keep")
    return chosen.subset(right.nonzero().flatten())
