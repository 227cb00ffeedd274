"""Networks by name: the six of the paper, or a function in a user's file."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from steadynet.errors import UserError, one_line
from steadynet.networks.custom import load_factory
from steadynet.networks.grafting import GRAFTED, with_grafted_relus
from steadynet.networks.initialisation import initialise_for_intervals, suits_narrow_intervals
from steadynet.networks.normalise import Normalise
from steadynet.networks.paper import ARCHITECTURES, Architecture
from steadynet.plugins import choose, split_reference

__all__ = [
    "ARCHITECTURES",
    "GIVEN",
    "GRAFTED",
    "Architecture",
    "Normalise",
    "build",
    "check_classifies",
    "custom_source",
    "grafted_if_named",
    "initialise_for_intervals",
    "is_onnx",
    "load_factory",
    "suits_narrow_intervals",
]


ONNX_ENDINGS = (".onnx", ".onnx.gz")
GIVEN = "given in Python"  # stands for a network that a user passed as an object, so that it cannot be built again


def custom_source(model: str) -> tuple[Path, str] | None:
    """Split ``file.py:factory`` into the file and the name of the function; None for any other name.

    The ending ``+grafted`` is left out.

    >>> path, factory = custom_source("mine.py:small")
    >>> str(path), factory, custom_source("M1")
    ('mine.py', 'small', None)
    """
    return split_reference(model.removesuffix(GRAFTED))


def is_onnx(model: str) -> bool:
    """Return whether a model is an ONNX file.

    >>> is_onnx("net.onnx.gz"), is_onnx("M1")
    (True, False)
    """
    return model.lower().endswith(ONNX_ENDINGS)


def build(model: str, image_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a network with new weights.

    Args:
        model: ``M1``, ``M2``, ``M3``, ``C1``, ``C2``, ``C3``, or ``file.py:factory``. With ``+grafted`` behind it,
            its ReLUs can be replaced by lines (:mod:`steadynet.networks.grafting`); no ReLU is replaced yet.
        image_shape: The shape of one image.
        classes: The number of classes.

    Returns:
        The network.

    Raises:
        UserError: There is no such model, or it does not fit the images and classes.

    >>> build("M1", (1, 28, 28), 10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    own, plain = custom_source(model), model.removesuffix(GRAFTED)
    if plain == GIVEN:
        raise UserError("the network of this run was given in Python: pass it again as network=…")
    if own:
        network = load_factory(*own, image_shape, classes)
    elif plain.endswith(".py"):
        raise UserError(f"--model {model} names no factory: write {model}:make_network")
    else:
        network = choose("model", plain, ARCHITECTURES).build(image_shape, classes)
    return grafted_if_named(model, check_classifies(network, image_shape, classes), image_shape)


def grafted_if_named(model: str, network: nn.Module, image_shape: tuple[int, ...]) -> nn.Module:
    """Return the network with ReLUs that can be replaced by lines if ``model`` ends with ``+grafted``."""
    return with_grafted_relus(network, image_shape) if model.endswith(GRAFTED) else network


def check_classifies(network: nn.Module, image_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Check that a network maps images of this shape to one score per class.

    Args:
        network: The network.
        image_shape: The shape of one image.
        classes: The number of classes.

    Returns:
        The network itself.

    Raises:
        UserError: It fails on such images, or its output has another shape.
    """
    reference = next(network.parameters(), torch.zeros(()))
    images = torch.zeros(2, *image_shape, device=reference.device)
    training = network.training
    try:
        with torch.no_grad():
            scores = network.eval()(images)
    except Exception as error:  # the user's network may fail in any way
        raise UserError(f"the model cannot take images of shape {tuple(image_shape)}: {one_line(error)}") from error
    finally:
        network.train(training)
    if not isinstance(scores, Tensor) or scores.shape != (2, classes):
        shape = tuple(scores.shape[1:]) if isinstance(scores, Tensor) else type(scores).__name__
        raise UserError(f"the model's output has shape {shape}, but the data has {classes} classes")
    return network
