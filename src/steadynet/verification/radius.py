"""How robust is it? For each image, the largest radius that is proved and the smallest one that is refuted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from steadynet.attacks.pgd import find_counterexamples
from steadynet.attacks.region import InputRegion
from steadynet.devices import device_of, full_precision
from steadynet.errors import UserError
from steadynet.graph.rounding import Arithmetic
from steadynet.training.notation import parse_radius
from steadynet.verification.given import given_images, given_network, in_precision_of
from steadynet.verification.properties import Guarantee, Properties, Result, Verdict
from steadynet.verification.replay import replay_counterexample
from steadynet.verification.search.carry_over import CarryOver
from steadynet.verification.verifiers import Verifier, make_verifier
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound

ATTACK_STEPS = 40
HALVINGS = 40  # of a bracket at most: more than float32 can tell apart


@dataclass(frozen=True)
class Radius:
    """What is known of the largest radius at which an image keeps its label.

    Attributes:
        proved: The largest radius that was proved; 0 if none was.
        refuted: The smallest radius with a counterexample; None if none was found up to the largest radius tried. A
            misclassified image is refuted at 0.
        counterexample: The counterexample, if there is one.
        seconds: The time that it took.
        open_at: The smallest radius at which the verifier ran out of time, if it did.
        arithmetic: Which arithmetic the proof at ``proved`` speaks of.
        guarantee: What that proof rests on.

    >>> Radius(0.1, 0.12).described()
    'proved to 0.1, refuted from 0.12'
    """

    proved: float
    refuted: float | None
    counterexample: Tensor | None = field(default=None, repr=False)
    seconds: float = 0.0
    open_at: float | None = None
    arithmetic: Arithmetic | None = field(default=None, repr=False)
    guarantee: Guarantee | None = field(default=None, repr=False)

    def described(self) -> str:
        """Say it in words."""
        until = f"proved to {self.proved:.4g}" if self.proved else "nothing proved"
        return until + ("" if self.refuted is None else f", refuted from {self.refuted:.4g}")


def largest_radius(
    model: Any,
    images: Any,
    labels: Any = None,
    *,
    most: float | str = 0.5,
    tolerance: float | str = 0.002,
    verifier: str = "branch_and_bound",
    **settings: object,
) -> Radius | list[Radius]:
    """Find out, for each image, up to which radius the network keeps its label (L∞).

    Args:
        model: The network, in any form that :func:`~steadynet.verify` takes.
        images: The images, likewise; one image without a batch, if ``labels`` is one number.
        labels: The label of each image.
        most: The largest radius to try, such as 0.1 or ``"8/255"``.
        tolerance: How close the proved and the refuted radius must come before the search for an image ends.
        verifier: The name of a verifier.
        **settings: Settings of that verifier. The time-out is that of one radius, 10 s unless given.

    Returns:
        One record per image; a single record for one image without a batch.

    Raises:
        UserError: The images, labels, network or settings make no sense.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 2))
        >>> _ = model[0].weight.data.copy_(torch.tensor([[1.0], [0.0]]))
        >>> _ = model[0].bias.data.copy_(torch.tensor([0.0, 0.2]))  # label 0 where the input is above 0.2
        >>> found = largest_radius(model, [0.5], 0, tolerance=0.01)
        >>> 0.29 < found.proved < 0.3 < found.refuted < 0.31
        True
    """
    one = not isinstance(labels, (list, tuple)) and labels is not None and getattr(labels, "ndim", 0) == 0
    pixels, numbers = given_images(images, labels)
    network = given_network(model, tuple(pixels.shape[1:]))
    chosen = make_verifier(verifier, {"timeout": 10.0} | settings)
    limits = parse_radius(most), parse_radius(tolerance)
    search = RadiusSearch(network, in_precision_of(network, pixels), numbers, chosen, *limits)
    search.run()
    return search.found[0] if one else search.found


class RadiusSearch:
    """The search for the radii of a batch of images. Its brackets are right whenever it is stopped.

    First PGD looks for counterexamples by halving. Their distance from the image bounds the bracket from above. Then
    the verifier halves the brackets of all images at once. A radius at which it runs out of time counts as not proved,
    and a counterexample that it finds counts with its own distance, not with the radius. Our own verifier hands on what
    it learned from one radius to the next (:mod:`~steadynet.verification.search.carry_over`).

    Args:
        network: The network.
        images: The images, in the precision of the network.
        labels: Their labels.
        verifier: Decides one radius of each image.
        most: The largest radius to try.
        tolerance: The width of a bracket that is narrow enough.
        reuse: Whether the search at one radius uses what those at other radii learned.

    Attributes:
        found: What is known of each image so far.
    """

    def __init__(
        self,
        network: nn.Module,
        images: Tensor,
        labels: Tensor,
        verifier: Verifier,
        most: float,
        tolerance: float,
        *,
        reuse: bool = True,
    ) -> None:
        if not 0 < most <= 1:
            raise UserError(f"the largest radius is {most:g}: it must lie above 0 and be at most 1")
        if not 0 < tolerance < most:
            raise UserError(f"the tolerance is {tolerance:g}: it must lie above 0 and below the largest radius")
        device = device_of(network)
        self.properties = Properties.around(network, images.to(device), labels.to(device), most)
        self.verifier, self.most, self.tolerance, self.reuse = verifier, most, tolerance, reuse
        self.found = [Radius(0.0, None) for _ in range(len(labels))]
        self.carried = [CarryOver() for _ in range(len(labels))]  # from the search at one radius to that at the next

    def run(self, on_round: Callable[[float], None] = lambda share: None) -> None:
        """Run the search to its end.

        Args:
            on_round: Called after each round with the share of the work that is done.
        """
        self._attack()
        rounds = max(math.ceil(math.log2(self.most / self.tolerance)), 1) + 1
        self._decide([self.most if found.refuted is None else 0.0 for found in self.found])
        for number in range(HALVINGS):
            radii = [self._next(found) for found in self.found]
            on_round(min((number + 1) / (rounds + 1), 1.0))
            if not any(radii):
                break
            self._decide(radii)
        on_round(1.0)

    def _next(self, found: Radius) -> float:
        """Return the radius to try next for an image: the middle of its bracket, or 0 if that is narrow enough."""
        limits = [self.most if found.refuted is None else found.refuted]
        limits += [] if found.open_at is None else [found.open_at]
        upper = min(limits)
        return (found.proved + upper) / 2 if upper - found.proved > self.tolerance else 0.0

    def _attack(self) -> None:
        """Look for counterexamples by PGD: at the largest radius, then halfway to where it failed."""
        failed = [0.0] * len(self.found)  # the largest radius at which the attack found nothing
        radii = [self.most] * len(self.found)
        for _ in range(HALVINGS):
            rows = [index for index, radius in enumerate(radii) if radius]
            if not rows:
                break
            part = self._at([radii[index] for index in rows], torch.tensor(rows))
            with full_precision(part.images.device):
                hit, points = find_counterexamples(
                    part.network, part.images, part.labels, part.region, steps=ATTACK_STEPS
                )
            for index, refuted, point in zip(rows, hit.tolist(), points, strict=True):
                if refuted:
                    self._refute(index, point, at_most=radii[index])
                else:
                    failed[index] = max(failed[index], radii[index])
            radii = [self._halfway(low, found) for low, found in zip(failed, self.found, strict=True)]

    def _halfway(self, failed: float, found: Radius) -> float:
        """Return the radius to attack next: 0 if nothing was refuted, or the bracket is narrow enough."""
        wide = found.refuted is not None and found.refuted - failed > self.tolerance
        return (failed + found.refuted) / 2 if wide and found.refuted else 0.0

    def _decide(self, radii: list[float]) -> None:
        """Let the verifier decide one radius of each image; none if it is 0."""
        rows = [index for index, radius in enumerate(radii) if radius]
        if not rows:
            return
        part = self._at([radii[index] for index in rows], torch.tensor(rows))

        def record(number: int, result: Result) -> None:
            index = rows[number]
            self._record(index, radii[index], replay_counterexample(part, number, result.stated()))

        if self.reuse and type(self.verifier) is BranchAndBound:
            self.verifier.verify(part, record, [self.carried[index] for index in rows])
        else:
            self.verifier.verify(part, record)

    def _record(self, index: int, radius: float, result: Result) -> None:
        """Record what the verifier says of one radius of one image."""
        found = replace(self.found[index], seconds=self.found[index].seconds + result.seconds)
        self.found[index] = found
        if result.verdict is Verdict.UNSAT:
            self.found[index] = replace(found, proved=radius, arithmetic=result.arithmetic, guarantee=result.guarantee)
        elif result.verdict is Verdict.SAT and result.counterexample is not None:
            self._refute(index, result.counterexample, at_most=radius)
        elif result.verdict is Verdict.ERROR:
            raise UserError(f"{self.verifier.name} cannot verify this network: {result.reason}")
        else:
            self.found[index] = replace(found, open_at=min(found.open_at or self.most, radius))

    def _refute(self, index: int, point: Tensor, at_most: float = math.inf) -> None:
        """Record a counterexample. It refutes every radius from its distance to the image on."""
        image = self.properties.images[index]
        distance = min(float((point.double() - image.double()).abs().max()), at_most)
        found = self.found[index]
        if found.refuted is None or distance < found.refuted:
            self.found[index] = replace(found, refuted=max(distance, 0.0), counterexample=point.detach().cpu())

    def _at(self, radii: list[float], rows: Tensor) -> Properties:
        """Return the properties of some images, each at its own radius."""
        part = self.properties[rows.to(self.properties.images.device)]
        shape = (-1, *[1] * (part.images.dim() - 1))
        sizes = torch.tensor(radii, dtype=part.images.dtype, device=part.images.device).view(shape)
        region = InputRegion((part.images - sizes).clamp_min(0), (part.images + sizes).clamp_max(1))
        return replace(part, region=region, checked=True)
