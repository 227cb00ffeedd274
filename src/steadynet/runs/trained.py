"""A trained network back from its run directory."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from steadynet import data, networks
from steadynet.errors import UserError
from steadynet.networks import Normalise
from steadynet.runs.config import RunConfig
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import load_tensors, load_weights


@dataclass(frozen=True)
class TrainedNetwork:
    """The network in evaluation mode, on the CPU, with the configuration it was trained by."""

    network: nn.Module
    config: RunConfig
    run: RunDirectory

    def data(self) -> data.Dataset:
        """The data it was trained on."""
        return data.load(self.config.data)


def load_trained(path: str | Path, network: nn.Module | None = None) -> TrainedNetwork:
    """The network of a finished run; one that was given to ``train`` in Python is given again."""
    run = finished_run(path)
    config = run.read_config()
    tensors, _ = load_tensors(run.weights)
    network = build_network(config, run, network)
    load_weights(network, tensors, run.weights)
    return TrainedNetwork(network.eval(), config, run)


def finished_run(path: str | Path) -> RunDirectory:
    """A run that has its weights."""
    run = RunDirectory.existing(path)
    if not run.weights.is_file():
        raise UserError(f"{path} is not finished: steadynet train --resume --out {shlex.quote(str(path))}")
    return run


def build_network(config: RunConfig, run: RunDirectory | None = None, given: nn.Module | None = None) -> nn.Module:
    """Build the network that a configuration describes, with fresh weights.

    Args:
        config: The configuration. If it has statistics of the training images, the network normalises its input.
        run: The run directory, which may hold a copy of the user's model file.
        given: A network to use instead of the one that the configuration names.
    """
    network = given if given is not None else _named_network(config, run)
    if config.input.mean is None or config.input.std is None:
        return network
    return nn.Sequential(Normalise(config.input.mean, config.input.std, len(config.input.image_shape)), network)


def _named_network(config: RunConfig, run: RunDirectory | None) -> nn.Module:
    """Build the network that the setting ``model`` names; a user's own from the copy in the run, if there is one."""
    model = config.model
    own = networks.custom_source(model)
    if own and run and run.model_source.is_file():
        model = f"{run.model_source}:{own[1]}"
    return networks.build(model, config.input.image_shape, config.input.classes)
