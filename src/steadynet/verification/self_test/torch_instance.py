"""Robustness properties of a PyTorch network with known truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.devices import full_precision
from steadynet.errors import UserError
from steadynet.files import write_atomically
from steadynet.interchange.onnx.writer import onnx_model
from steadynet.interchange.vnnlib.robustness import write_robustness
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.verification.properties import Properties, Result, Verdict, is_counterexample
from steadynet.verification.self_test.known import Answer, ConstructionError, KnownInstance, Truth
from steadynet.verification.self_test.rounding_bound import clearly_violated
from steadynet.verification.verifiers import make_verifier


@dataclass(frozen=True)
class KnownBox:
    """One property: a box, the label that all its inputs must have, and whether they do.

    Args:
        lower: The lower corner, (*shape).
        upper: The upper corner, (*shape).
        truth: What is known about the property.
        witness: For ``Truth.VIOLATED``, an input of the box that replays as a counterexample, (*shape).
        label: The label.
        exact: Whether exact arithmetic has confirmed the truth already. Otherwise the witness must violate the property
            in exact arithmetic, too.
    """

    lower: Tensor
    upper: Tensor
    truth: Truth
    witness: Tensor | None = None
    label: int = 0
    exact: bool = False


@dataclass(frozen=True)
class NetworkInstance(KnownInstance):
    """Some properties of one PyTorch network.

    Args:
        properties: The properties.
        truths: The truth of each.
        witnesses: An input that violates each property, where one is known, (*shape).
    """

    properties: Properties
    truths: tuple[Truth, ...]
    witnesses: tuple[Tensor | None, ...]

    def decide(self, verifier: str, settings: Mapping[str, object]) -> list[Answer]:
        """Let a verifier decide the properties together, and replay its counterexamples."""
        results = make_verifier(verifier, settings)(self.properties)
        return [self._answer(index, result) for index, result in enumerate(results)]

    def _answer(self, index: int, result: Result) -> Answer:
        replays = False
        if result.verdict is Verdict.SAT and result.counterexample is not None:
            with evaluation_mode(self.properties.network), full_precision(self.properties.images.device):
                replays = is_counterexample(self.properties, index, result.counterexample)
        return Answer(
            result.verdict, result.seconds, replays, result.arithmetic, str(result.decided_by), str(result.reason)
        )

    def save(self, index: int, folder: Path) -> None:
        """Write the network and one property, without the checks that a network with overflows would not pass."""
        properties = self.properties
        with torch.no_grad(), evaluation_mode(properties.network):
            classes = properties.network(properties.images[:1]).shape[1]
            content = onnx_model(properties.network, tuple(properties.images.shape[1:])).SerializeToString()
        write_atomically(folder / "network.onnx", lambda path: path.write_bytes(content))
        label, region = int(properties.labels[index]), properties.region
        write_robustness(folder / "property.vnnlib", region.lower[index], region.upper[index], label, classes)


def refutes(network: nn.Module, point: Tensor, label: int = 0) -> bool:
    """Return whether PyTorch, run on a point (*shape) alone, gives it another label."""
    with torch.no_grad(), evaluation_mode(network), full_precision(point.device):
        return int(network(point[None]).argmax(1)) != label


def network_instance(network: nn.Module, boxes: Sequence[KnownBox]) -> NetworkInstance:
    """Return the properties of some boxes, after their witnesses were checked in float32 and in exact arithmetic.

    Args:
        network: The network; it is put in evaluation mode.
        boxes: The properties.

    Raises:
        ConstructionError: A witness does not violate its property, or the first image overflows.
    """
    network.eval().requires_grad_(False)
    region = InputRegion(torch.stack([box.lower for box in boxes]), torch.stack([box.upper for box in boxes]))
    labels = torch.tensor([box.label for box in boxes])
    try:
        properties = Properties(network, region.project((region.lower + region.upper) / 2), labels, region)
    except UserError as error:  # the first image overflows: such networks are refused before a verifier sees them
        raise ConstructionError from error
    for index, box in enumerate(boxes):
        if box.truth is Truth.VIOLATED and not _witnessed(properties, index, box):
            raise ConstructionError
    return NetworkInstance(properties, tuple(box.truth for box in boxes), tuple(box.witness for box in boxes))


def _witnessed(properties: Properties, index: int, box: KnownBox) -> bool:
    if box.witness is None or not is_counterexample(properties, index, box.witness):
        return False
    return box.exact or clearly_violated(properties.network, box.witness, box.label)
