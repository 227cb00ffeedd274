"""Verification from Python: a model, images and a radius in, results out."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from steadynet.devices import full_precision
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.plugins import choose, make
from steadynet.verification import verifiers
from steadynet.verification.properties import Properties, Result, Verdict, is_counterexample
from steadynet.verification.verifiers import Verifier


def verify(
    model: nn.Module, images: Tensor, labels: Tensor, eps: float, verifier: str = "branch_and_bound", **settings: object
) -> list[Result]:
    """Does each image (batch, *shape), in [0, 1], keep its label everywhere within ``eps``? One result an image.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(1, 2))
    >>> _ = model[0].weight.data.copy_(torch.tensor([[1.0], [0.0]]))
    >>> _ = model[0].bias.data.copy_(torch.tensor([0.0, 0.2]))
    >>> [result.verdict.value for result in verify(model, torch.tensor([[0.5], [0.1]]), torch.tensor([0, 0]), 0.2)]
    ['unsat', 'sat']
    """
    if len(images) != len(labels) or not len(images):
        raise UserError(f"{len(images)} images and {len(labels)} labels: verify needs one label an image")
    if not (float(images.min()) >= 0 and float(images.max()) <= 1):
        raise UserError(f"pixels lie in [{float(images.min()):g}, {float(images.max()):g}]; they must lie in [0, 1]")
    if not eps > 0:
        raise UserError(f"eps = {eps} must be larger than 0")
    properties = Properties.around(model, images, labels, eps)
    return [
        checked(properties, index, result) for index, result in enumerate(make_verifier(verifier, settings)(properties))
    ]


def make_verifier(name: str, settings: dict[str, object]) -> Verifier:
    """A verifier by name with its settings; what is misspelt is an error that names the nearest."""
    return make(choose("verifier", name, verifiers.available()), settings)


def checked(properties: Properties, index: int, result: Result) -> Result:
    """The result; but one that says ``sat`` without a counterexample that replays is an error, whoever says it."""
    if result.verdict is not Verdict.SAT:
        return result
    with evaluation_mode(properties.network), full_precision(properties.images.device):
        if result.counterexample is not None and is_counterexample(properties, index, result.counterexample):
            return result
    return replace(
        result, verdict=Verdict.ERROR, counterexample=None, reason="the counterexample given does not replay"
    )
