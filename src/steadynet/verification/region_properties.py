"""Properties of regions beyond one ε: images in, results with changed images out."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.devices import full_precision
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.translate import graph_of
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.regions import BoxRegion, LinearRegion
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.replay import replay_counterexample
from steadynet.verification.verifiers import Verifier
from steadynet.verification.verifiers.base import OnResult


def decide_region(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    region: BoxRegion | LinearRegion,
    verifier: Verifier,
    on_result: OnResult,
) -> list[Result]:
    """Decide whether each image keeps its label in its region.

    ``on_result`` is called once per image, with its index and its result.

    Returns:
        One result per image. Counterexamples are images, also where the region is described by other numbers.
    """
    if isinstance(region, BoxRegion):
        boxes = region.around(images)
        return _replayed(Properties(network, boxes.project(images), labels, boxes), verifier, on_result)
    if not len(images):
        return []
    with evaluation_mode(network):
        graph = graph_of(network, tuple(images.shape[1:]))
    found = []
    for index, (layers, label) in enumerate(zip(region.layers(images), labels, strict=True)):
        first = graph_of(layers, (len(region.low),))
        longer = GraphNetwork(graph.after(first), (len(region.low),)).to(images.device)
        box = region.box(1, images)
        (result,) = _replayed(Properties(longer, _middle(box), label[None], box), verifier)
        found.append(_with_image(result, layers, network, label))
        on_result(index, found[-1])
    return found


def _replayed(
    properties: Properties, verifier: Verifier, on_result: OnResult = lambda index, result: None
) -> list[Result]:
    results = verifier(properties, on_result)
    return [replay_counterexample(properties, index, result) for index, result in enumerate(results)]


def _middle(box: InputRegion) -> Tensor:
    return box.project((box.lower + box.upper) / 2)


def _with_image(result: Result, layers: nn.Sequential, network: nn.Module, label: Tensor) -> Result:
    """Return a result whose counterexample is the changed image, not the numbers that describe the change.

    The image is run through the user's own network once more. Rounding may have decided, and then there is no verdict.
    """
    if result.counterexample is None:
        return result
    with torch.no_grad(), evaluation_mode(network), full_precision(label.device):
        image = layers(result.counterexample[None])
        if int(network(image).argmax(1)) != int(label):
            return replace(result, counterexample=image[0])
    reason = "the changed image does not replay: its scores are equal to within rounding"
    return replace(result, verdict=Verdict.UNKNOWN, counterexample=None, reason=reason).stated()
