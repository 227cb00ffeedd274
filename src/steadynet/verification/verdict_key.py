"""The key of a stored verdict: a SHA-256 hash of everything that the verdict depends on.

A stored verdict is used again only for the same key. A name is never part of it: neither of a file nor of a run.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError, one_line
from steadynet.graph.translate import graph_of
from steadynet.interchange.onnx.files import load_model
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.plugins import settings_of
from steadynet.regions import BoxRegion, LinearRegion
from steadynet.verification.verifiers import Verifier

# Raised with every fix that could change a verdict, so that no verdict from before the fix is used again.
# 1: rounding errors were estimated as independent; HiGHS' word counted as a proof. Verdicts had no version.
# 2: rounding is bounded rigorously, for sums in any order; leaves are proved by checked multipliers of the linear
#    program; maxima are written as ReLUs; programs for HiGHS are scaled; constants that were rounded are counted.
# 3: networks with noise or state, or that change their images, are refused; translations are compared number by number.
# 4: clipping's own difference, coefficients whose parts cancel, overflow and flushed numbers are counted.
# 5: sums and products of ONNX files are not folded where float32 rounds; each of their tensors is compared by itself.
# 6: networks in float64 are no longer rounded to float32 when they are exported.
# 8: forwards that look at values, clocks or random numbers, keep any state, or differ from their trace are refused.
# 9: numbers of a VNN-LIB property are computed exactly, and counterexamples are judged in exact arithmetic.
# 10: programs for HiGHS keep the weights of layers and neurons that are scaled by 10¹⁵ or 10⁻¹⁵, say.
SOUNDNESS_VERSION = 10
# The same for the reader of VNN-LIB files, whose fixes change the verdicts of such files only.
# 2: a carriage return ends a comment.
# 3: numbers that float64 does not hold are not rounded inwards, and counterexamples are judged by them; the tensors of
#    an ONNX Sum may be added in any order.
VNNLIB_VERSION = 3

NEVER_AGAIN = "once-"  # the start of a key whose verdict is never used again


def property_keys(
    network: nn.Module, images: Tensor, labels: Tensor, radii: Sequence[float], verifier: Verifier
) -> dict[tuple[float, int], str]:
    """Compute the keys of robustness properties.

    Args:
        network: The network.
        images: The images (batch, *shape).
        labels: The label of each image.
        radii: The radii ε.
        verifier: The verifier. Its time-out is not part of the key.

    Returns:
        The key of each property by radius and position of the image.

    Example:
        >>> from steadynet.verification.verifiers import make_verifier
        >>> verifier, images = make_verifier("milp", {}), torch.tensor([[0.5]])
        >>> network = nn.Sequential(nn.Linear(1, 2))
        >>> one, other = [
        ...     property_keys(network, images, torch.tensor([label]), [0.1], verifier)[0.1, 0] for label in (0, 1)
        ... ]
        >>> len(one), one == other
        (64, False)
    """
    if not len(images):
        return {}
    return keys_of_hash(network_hash(network, tuple(images.shape[1:])), images, labels, radii, verifier)


def keys_of_hash(
    hashed: str, images: Tensor, labels: Tensor, radii: Sequence[float], verifier: Verifier
) -> dict[tuple[float, int], str]:
    """Compute the same keys from the hash of the network, where the network itself is not there."""
    prefix = NEVER_AGAIN if hashed.startswith(NEVER_AGAIN) else ""
    hashed, verifier_hash = hashed.removeprefix(NEVER_AGAIN), _verifier_hash(verifier)
    keys = {}
    for eps in radii:
        region = InputRegion.around(images, eps)
        for position, label in enumerate(labels.tolist()):
            bounds = region.lower[position], region.upper[position]
            keys[eps, position] = prefix + _hash("robustness", hashed, verifier_hash, *bounds, label)
    return keys


def region_keys(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    region: BoxRegion | LinearRegion,
    claim: str,
    verifier: Verifier,
) -> list[str]:
    """Compute the keys of claims about regions beyond one ε, one per image.

    Args:
        network: The network.
        images: The images (batch, *shape).
        labels: The label of each image.
        region: The region. Its limits, or its directions and their ranges, are part of the key.
        claim: What is claimed, in words that have all its numbers.
        verifier: The verifier. Its time-out is not part of the key.
    """
    hashed = network_hash(network, tuple(images.shape[1:]))
    prefix = NEVER_AGAIN if hashed.startswith(NEVER_AGAIN) else ""
    if isinstance(region, BoxRegion):
        box = region.around(images)
        numbers: tuple[object, ...] = ()
        tensors = box.lower, box.upper
    else:
        numbers, tensors = (region.low, region.high), region.directions(images)
    common = ("region", hashed, _verifier_hash(verifier), claim, numbers)
    return [
        prefix + _hash(*common, *(rows[place] for rows in tensors), label)
        for place, label in enumerate(labels.tolist())
    ]


def instance_key(network: Path, property_file: Path, verifier: Verifier) -> str:
    """Compute the key of a VNN-COMP instance from the bytes of its files, with the network's external data.

    Args:
        network: The ONNX file.
        property_file: The VNN-LIB file.
        verifier: The verifier. Its time-out is not part of the key.

    Raises:
        UserError: A file cannot be read.
    """
    try:
        property_bytes = property_file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {property_file}: {one_line(error)}") from error
    network_bytes = load_model(network).SerializeToString(deterministic=True)
    return _hash("instance", VNNLIB_VERSION, network_bytes, property_bytes, _verifier_hash(verifier))


def _verifier_hash(verifier: Verifier) -> str:
    """Hash a verifier: its class, the exact values of its settings, and the soundness version."""
    kind = type(verifier)
    settings = sorted(
        (entry.name, repr(getattr(verifier, entry.name))) for entry in settings_of(kind) if entry.name != "timeout"
    )
    return _hash(SOUNDNESS_VERSION, verifier.name, kind.__module__, kind.__qualname__, tuple(settings))


def network_hash(network: nn.Module, input_shape: tuple[int, ...]) -> str:
    """Hash a network: its weights by name, and its graph with all constants, so that other code never matches.

    Args:
        network: The network.
        input_shape: The shape of one image.

    Returns:
        The hash. Without a graph the code is not in it: then it starts with ``NEVER_AGAIN``, as its keys do, so that
        verdicts are recognised in tables, but never used again.
    """
    weights = tuple(network.state_dict().items())
    try:
        with torch.no_grad(), evaluation_mode(network):
            nodes = graph_of(network, input_shape).nodes
            return _hash(weights, tuple((node.operation, node.inputs) for node in nodes))
    except Exception:  # whatever breaks, the verifier says it of each property
        return NEVER_AGAIN + _hash(weights)


def _hash(*values: object) -> str:
    """Hash values together with their types and lengths, so that different values never have the same bytes."""
    digest = hashlib.sha256()
    _add(digest, values)
    return digest.hexdigest()


def _add(digest: hashlib._Hash, value: object) -> None:
    kind = Tensor if isinstance(value, Tensor) else type(value)  # a parameter is a tensor
    digest.update(f"{kind.__module__}.{kind.__qualname__}:".encode())
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}:".encode() + _bytes(value))
    elif isinstance(value, bytes):
        digest.update(f"{len(value)}:".encode() + value)
    elif isinstance(value, (tuple, list)):
        digest.update(f"{len(value)}:".encode())
        for part in value:
            _add(digest, part)
    elif dataclasses.is_dataclass(value):
        _add(digest, tuple((entry.name, getattr(value, entry.name)) for entry in dataclasses.fields(value)))
    elif value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value).encode()
        digest.update(f"{len(text)}:".encode() + text)
    else:
        raise TypeError(f"a {kind.__qualname__} has no hash")


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
