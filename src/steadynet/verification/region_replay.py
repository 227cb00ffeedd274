"""Whether a stored counterexample refutes a claim in a region, by running the network on it again."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.claims import AnyClaim, Claim, Monotone
from steadynet.devices import full_precision
from steadynet.interchange.vnnlib.property import Disjunct
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.regions import BoxRegion, LinearRegion
from steadynet.verification.monotone_properties import violates
from steadynet.verification.properties import Properties, is_counterexample

SAME_IMAGE = 1e-5  # how far a changed image may be from the image that its numbers give, in each pixel


def replays(
    network: nn.Module,
    image: Tensor,
    label: int,
    region: BoxRegion | LinearRegion,
    claim: AnyClaim | None,
    point: Tensor,
) -> bool:
    """Return whether a point of the region violates the claim.

    Args:
        network: The network.
        image: The image, (1, *image).
        label: Its label.
        region: The region, of this image alone.
        claim: The claim; None if it is that the label stays.
        point: The counterexample: an input, or a pair of inputs if the claim is about pairs.
    """
    if isinstance(region, LinearRegion):
        return _is_changed_image(region, image, point) and int(_outputs(network, point).argmax()) != label
    box = region.around(image)
    if claim is None:
        with evaluation_mode(network):
            return is_counterexample(Properties(network, box.project(image), torch.tensor([label]), box), 0, point)
    if isinstance(claim, Monotone):
        return violates(network, claim, box, point)
    return _violates_outputs(network, image, label, box, claim, point)


def _violates_outputs(
    network: nn.Module, image: Tensor, label: int, box: InputRegion, claim: Claim, point: Tensor
) -> bool:
    lower, upper, at = (side.double().flatten().cpu().numpy() for side in (box.lower, box.upper, point))
    ways = claim.violations(_outputs(network, image[0]), label)
    outputs = _outputs(network, point)
    return any(Disjunct(lower, upper, *way).satisfied_by(at, outputs) for way in ways)


def _outputs(network: nn.Module, point: Tensor) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    with evaluation_mode(network), torch.no_grad(), full_precision(point.device):
        return np.asarray(network(point[None])[0].double().flatten().cpu().numpy())


def _is_changed_image(region: LinearRegion, image: Tensor, point: Tensor) -> bool:
    """Whether some numbers θ in their ranges give this image, up to rounding: those that fit its unclipped pixels."""
    start, directions = (value[0].double().flatten(-image.dim() + 1) for value in region.directions(image))
    goal = point.double().flatten()
    free = (goal > 0) & (goal < 1)
    fitted = torch.linalg.lstsq(directions[:, free].T, (goal - start)[free][:, None]).solution[:, 0]
    low, high = (torch.tensor(values, dtype=torch.float64) for values in (region.low, region.high))
    theta = torch.minimum(torch.maximum(fitted.nan_to_num(), low), high)
    return bool(((start + theta @ directions).clamp(0, 1) - goal).abs().max() <= SAME_IMAGE)
