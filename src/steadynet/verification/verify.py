"""Verification from Python: a model, images and a radius in, results out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from steadynet.devices import full_precision
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.plugins import make
from steadynet.verification import verifiers
from steadynet.verification.properties import Guarantee, Properties, Result, Verdict, is_counterexample
from steadynet.verification.verifiers import Verifier


def verify(
    model: nn.Module, images: Tensor, labels: Tensor, eps: float, verifier: str = "branch_and_bound", **settings: object
) -> list[Result]:
    """Decide whether each image keeps its label everywhere within distance ``eps`` (L∞).

    Args:
        model: The network, which maps images (batch, *shape) to scores (batch, classes).
        images: The images (batch, *shape), with pixels in [0, 1].
        labels: The label that each image should keep (batch,).
        eps: The radius, larger than 0. The region of an image is its ε-box, clipped to [0, 1].
        verifier: The name of a verifier (``steadynet list verifiers`` shows them), or ``file.py:Class``.
        **settings: Settings of that verifier, for example ``timeout=10``.

    Returns:
        One result per image, in the same order. A ``sat`` result has a counterexample that replays.

    Raises:
        UserError: The images, labels, radius, verifier or settings make no sense.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(1, 2))
        >>> _ = model[0].weight.data.copy_(torch.tensor([[1.0], [0.0]]))
        >>> _ = model[0].bias.data.copy_(torch.tensor([0.0, 0.2]))
        >>> [result.verdict.value for result in verify(model, torch.tensor([[0.5], [0.1]]), torch.tensor([0, 0]), 0.2)]
        ['unsat', 'sat']
    """
    if len(images) != len(labels) or not len(images):
        raise UserError(f"{len(images)} images and {len(labels)} labels: verify needs one label per image")
    if not (float(images.min()) >= 0 and float(images.max()) <= 1):
        raise UserError(f"pixels lie in [{float(images.min()):g}, {float(images.max()):g}]; they must lie in [0, 1]")
    if not eps > 0:
        raise UserError(f"eps = {eps} must be larger than 0")
    properties = Properties.around(model, images, labels, eps)
    results = make_verifier(verifier, settings)(properties)
    return [replay_counterexample(properties, index, result) for index, result in enumerate(results)]


def make_verifier(name: str, settings: Mapping[str, object]) -> Verifier:
    """Make a verifier from its name and its settings.

    Args:
        name: The name of a verifier (``steadynet list verifiers`` shows them), or ``file.py:Class``.
        settings: The values of its settings. Those that are missing have their defaults.

    Returns:
        The verifier, which can be called with :class:`~steadynet.verification.properties.Properties`.

    Raises:
        UserError: The verifier or a setting is unknown (the message names the nearest one), a value does not fit, or
            the verifier needs a program that is not installed.

    Example:
        >>> make_verifier("milp", {"timeout": 5}).timeout
        5
    """
    return make(verifiers.named(name), settings)


def replay_counterexample(properties: Properties, index: int, result: Result) -> Result:
    """Return the result with its guarantee; a ``sat`` whose counterexample does not replay becomes an ``error``.

    Every ``sat``, whichever verifier it comes from, passes through this check.
    """
    if result.verdict is not Verdict.SAT:
        return result.stated()
    with evaluation_mode(properties.network), full_precision(properties.images.device):
        if result.counterexample is not None and is_counterexample(properties, index, result.counterexample):
            return replace(result.stated(), guarantee=Guarantee.REPLAYED)
    return replace(
        result, verdict=Verdict.ERROR, counterexample=None, reason="the counterexample given does not replay"
    ).stated()
