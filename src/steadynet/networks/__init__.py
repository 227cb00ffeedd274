"""Networks by name: the paper's six, or a user's own file."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from steadynet.errors import UserError, one_line
from steadynet.networks.custom import load_factory
from steadynet.networks.initialisation import initialise_for_intervals
from steadynet.networks.normalise import Normalise
from steadynet.networks.paper import ARCHITECTURES, Architecture
from steadynet.plugins import choose

__all__ = [
    "ARCHITECTURES",
    "GIVEN",
    "Architecture",
    "Normalise",
    "build",
    "check_classifies",
    "custom_source",
    "initialise_for_intervals",
]


GIVEN = "given in Python"  # the name of a model that has neither a name of ours nor a file


def custom_source(model: str) -> tuple[Path, str] | None:
    """The file and factory of ``file.py:factory``; None for a name of ours."""
    path, colon, factory = model.rpartition(":")
    return (Path(path), factory) if colon and path.endswith(".py") else None


def build(model: str, image_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network called ``model`` for such images and classes, with fresh weights."""
    own = custom_source(model)
    if model == GIVEN:
        raise UserError("this run's network was given in Python: give it again, as network=…")
    if own:
        network = load_factory(*own, image_shape, classes)
    elif model.endswith(".py"):
        raise UserError(f"--model {model} names no factory: write {model}:make_network")
    else:
        network = choose("model", model, ARCHITECTURES).build(image_shape, classes)
    return check_classifies(network, image_shape, classes)


def check_classifies(network: nn.Module, image_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network, once it has shown that it turns such images into one score a class."""
    reference = next(network.parameters(), torch.zeros(()))
    images = torch.zeros(2, *image_shape, device=reference.device)
    training = network.training
    try:
        with torch.no_grad():
            scores = network.eval()(images)
    except Exception as error:  # whatever the user's own network raises
        raise UserError(f"the model cannot take images of shape {tuple(image_shape)}: {one_line(error)}") from error
    finally:
        network.train(training)
    if not isinstance(scores, Tensor) or scores.shape != (2, classes):
        shape = tuple(scores.shape[1:]) if isinstance(scores, Tensor) else type(scores).__name__
        raise UserError(f"the model's output has shape {shape}, but the data has {classes} classes")
    return network
