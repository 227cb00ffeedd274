"""Verification from Python: a model, images and a radius in, results out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.claims import AnyClaim
from steadynet.data.samples import yields_samples
from steadynet.devices import device_of
from steadynet.errors import UserError
from steadynet.graph.translate import graph_of
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.regions import BoxRegion, LinearRegion
from steadynet.runs.progress import ProgressBar
from steadynet.training.notation import parse_radius, written_radius
from steadynet.verification.given import given_images, given_network, in_precision_of
from steadynet.verification.proofs.earlier import EarlierProofs, beginning_with
from steadynet.verification.proofs.folder import ProofFolder
from steadynet.verification.proofs.recording import recording
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.replay import replay_counterexample
from steadynet.verification.results import WORDS, Results
from steadynet.verification.verifiers import Verifier, make_verifier
from steadynet.verification.verifiers.base import OnResult


@overload
def verify(
    model: Any,
    images: Any,
    labels: Any = None,
    eps: float | str | None = None,
    verifier: str = ...,
    *,
    region: BoxRegion | LinearRegion | None = None,
    claim: AnyClaim | None = None,
    proofs: str | Path | None = None,
    from_proofs: str | Path | None = None,
    progress: bool | None = None,
    **settings: object,
) -> Results: ...
@overload
def verify(
    model: Any,
    images: Any,
    labels: Any = None,
    eps: Sequence[float | str] = ...,
    verifier: str = ...,
    *,
    region: None = None,
    claim: AnyClaim | None = None,
    proofs: str | Path | None = None,
    from_proofs: str | Path | None = None,
    progress: bool | None = None,
    **settings: object,
) -> dict[float, Results]: ...
def verify(
    model: Any,
    images: Any,
    labels: Any = None,
    eps: float | str | Sequence[float | str] | None = None,
    verifier: str = "branch_and_bound",
    *,
    region: BoxRegion | LinearRegion | None = None,
    claim: AnyClaim | None = None,
    proofs: str | Path | None = None,
    from_proofs: str | Path | None = None,
    progress: bool | None = None,
    **settings: object,
) -> Results | dict[float, Results]:
    """Decide whether each image keeps its label everywhere within distance ``eps`` (L∞), or in another region.

    Args:
        model: The network, which maps images (batch, *shape) to scores (batch, classes): a model of PyTorch, an ONNX
            file or ``onnx.ModelProto``, a run directory, or what :func:`~steadynet.load_trained` returned.
        images: The images (batch, *shape) with pixels in [0, 1], or in uint8: a tensor, an array or lists. Or a data
            set or loader that yields images with their labels, of ``torch.utils.data``, torchvision or Hugging Face.
            They are rounded to the precision of the network.
        labels: The label that each image should keep (batch,), or one-hot rows. Leave it out for a data set.
        eps: The radius, larger than 0 and at most 1, such as 0.1 or ``"8/255"``; or a list of radii. The region of an
            image is its ε-box, clipped to [0, 1].
        verifier: The name of a verifier (``steadynet list verifiers`` shows them), or ``file.py:Class``.
        region: Another region than an ε-box, instead of ``eps``: see :mod:`steadynet.regions`.
        claim: Another claim than that the label stays: see :mod:`steadynet.claims`.
        proofs: A folder for proofs of the proved properties, with the network as ``model.onnx``. ``steadycheck`` checks
            them. Only for ``eps``, without a ``claim``.
        from_proofs: A folder of proofs of another network with the same ReLU layers, or a run that has one: searches
            begin with them. That saves time where the network was changed a little, and changes no verdict's meaning.
        progress: Whether to show a progress bar. Unless given, notebooks show one.
        **settings: Settings of that verifier, for example ``timeout=10``.

    Returns:
        One result per image, in the same order; for a list of radii, the results of each radius. A ``sat`` result has a
        counterexample that replays.

    Raises:
        UserError: The images, labels, radius, verifier or settings make no sense, or no bounds are known for an
            operation of the network: the message names it and its layer.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2))
        >>> _ = model[0].weight.data.copy_(torch.tensor([[1.0], [0.0]]))
        >>> _ = model[0].bias.data.copy_(torch.tensor([0.0, 0.2]))
        >>> results = verify(model, [[0.5], [0.1]], [0, 0], eps=0.2)
        >>> [result.verdict.value for result in results]
        ['unsat', 'sat']
    """
    if claim is not None and not claim.needs_labels and labels is None and not yields_samples(images):
        labels = [0] * len(images)
    pixels, numbers = given_images(images, labels)
    if (eps is None) == (region is None):
        raise UserError("verify needs a radius, such as eps=0.1 or eps='8/255', or a region, and not both")
    network = given_network(model, tuple(pixels.shape[1:]))
    device = device_of(network)
    pixels, numbers = in_precision_of(network, pixels).to(device), numbers.to(device)
    chosen = make_verifier(verifier, settings)
    folder = None
    if from_proofs is not None:
        chosen = beginning_with(chosen, EarlierProofs(Path(from_proofs)))
    if proofs is not None:
        if claim is not None or region is not None:
            raise UserError("proofs are written for ε-boxes and labels only: leave out proofs, or claim and region")
        chosen, folder = recording(chosen), ProofFolder(Path(proofs))
        folder.take(model, network, tuple(pixels.shape[1:]))
    several = isinstance(eps, Sequence) and not isinstance(eps, str)
    radii = _radii(eps)
    with ProgressBar("verifying", progress) as bar:
        bar.start(len(pixels) * (1 if region is not None else len(radii)))
        asked = _Asked(network, pixels, numbers, claim, chosen, bar, folder)
        if region is not None:
            return asked.in_region(region)
        found = {radius: asked.within(radius) for radius in radii}
    return found if several else found[radii[0]]


def _radii(eps: float | str | Sequence[float | str] | None) -> list[float]:
    """Return the different radii that are given, in their order."""
    if eps is None:
        return []
    if isinstance(eps, Sequence) and not isinstance(eps, str):
        return list(dict.fromkeys(parse_radius(radius) for radius in eps))
    return [parse_radius(eps)]


@dataclass(frozen=True)
class _Asked:
    """What a user asks of a network, but for the region."""

    network: nn.Module
    images: Tensor
    labels: Tensor
    claim: AnyClaim | None
    verifier: Verifier
    bar: ProgressBar
    proofs: ProofFolder | None = None

    def within(self, eps: float) -> Results:
        """Decide the properties at one radius."""
        if self.claim is not None:
            return self._claimed(InputRegion.around(self.images, eps), eps, "")
        properties = Properties.around(self.network, self.images, self.labels, eps)
        found = [
            replay_counterexample(properties, index, result)
            for index, result in enumerate(self.verifier(properties, self._follow(f"ε {written_radius(eps)}")))
        ]
        if self.proofs is not None:
            with torch.no_grad(), evaluation_mode(self.network):
                classes = int(self.network(self.images[:1]).shape[1]) if len(self.images) else 0
            for index, result in enumerate(found):
                self.proofs.write_robustness(f"image_{index}_eps_{eps!r}", properties, index, classes, result)
            found = [replace(result, hints=None) for result in found]
        return self._results(found, eps, "")

    def in_region(self, region: BoxRegion | LinearRegion) -> Results:
        """Decide the properties in another region than a box around each image."""
        from steadynet.verification.region_properties import decide_region

        if self.claim is None:
            found = decide_region(
                self.network, self.images, self.labels, region, self.verifier, self._follow(region.name)
            )
            return self._results(found, None, region.name)
        if isinstance(region, LinearRegion):
            raise UserError(f"a claim is decided in boxes, and {region.name} is none: leave out claim or region")
        return self._claimed(region.around(self.images), None, region.name)

    def _claimed(self, boxes: InputRegion, eps: float | None, name: str) -> Results:
        from steadynet.verification.claim_properties import decide_claim

        assert self.claim is not None
        follow = self._follow(name if eps is None else f"ε {written_radius(eps)}")
        found = decide_claim(self.network, self.images, self.labels, boxes, self.claim, self.verifier, follow)
        return self._results(found, eps, name)

    def _follow(self, region: str) -> OnResult:
        """Return a function that moves the progress bar by one property and shows the number of each verdict."""
        counts: Counter[str] = Counter()

        def follow(index: int, result: Result) -> None:
            counts[WORDS[result.verdict]] += 1
            self.bar.move(1, f"{region}: " + ", ".join(f"{number} {word}" for word, number in counts.items()))

        return follow

    def _results(self, found: list[Result], eps: float | None, region: str) -> Results:
        if found and all(result.verdict is Verdict.ERROR for result in found):
            with evaluation_mode(self.network):
                graph_of(self.network, tuple(self.images.shape[1:]))  # raises if no bounds are known for the network
        return Results(tuple(found), self.images.cpu(), self.labels.cpu(), eps, region)
