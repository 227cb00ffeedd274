"""Load a trained network from its run directory."""

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
    """A trained network and how it was trained.

    Attributes:
        network: The network, in evaluation mode, on the CPU.
        config: The configuration of its training.
        run: Its run directory.
    """

    network: nn.Module
    config: RunConfig
    run: RunDirectory

    def __repr__(self) -> str:
        return f"TrainedNetwork({self.config.model} on {self.config.data}, from {str(self.run.path)!r})"

    def data(self) -> data.Dataset:
        """Load the data set that it was trained on."""
        return data.load(self.config.data)


def load_trained(path: str | Path, network: nn.Module | None = None) -> TrainedNetwork:
    """Load the trained network of a finished run.

    Args:
        path: The run directory.
        network: A network to load the weights into, if one was given to :func:`~steadynet.training.loop.train`: the run
            directory does not know how to build it.

    Returns:
        The network with its configuration.

    Raises:
        UserError: ``path`` is not a run directory, its training is not finished, a file is damaged, or the network must
            be given.

    >>> import tempfile
    >>> from steadynet import load_trained, resolve, train
    >>> settings = resolve({"data": "digits", "method": "natural", "epochs": 1, "train_images": 64, "validation": 0.0})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(settings, f"{folder}/run")
    ...     trained = load_trained(run.path)
    >>> trained.config.model, trained.config.eps, trained.network.training
    ('M1', 0.3, False)
    """
    run = finished_run(path)
    config = run.read_config()
    tensors, _ = load_tensors(run.weights)
    network = build_network(config, run, network)
    load_weights(network, tensors, run.weights)
    return TrainedNetwork(network.eval(), config, run)


def finished_run(path: str | Path) -> RunDirectory:
    """Return a run directory whose training must be finished.

    Raises:
        UserError: It is not a run directory, or has no weights yet.
    """
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
    if given is None and networks.is_onnx(config.model):
        from steadynet.runs.onnx_network import network_for_images

        file = run.network_file if run and run.network_file.is_file() else config.model
        return network_for_images(file, config.input.image_shape, config.input.mean, config.input.std)
    if given is None:
        network = _named_network(config, run)
    else:
        network = networks.grafted_if_named(config.model, given, config.input.image_shape)
    if config.input.mean is None or config.input.std is None:
        return network
    return nn.Sequential(Normalise(config.input.mean, config.input.std, len(config.input.image_shape)), network)


def _named_network(config: RunConfig, run: RunDirectory | None) -> nn.Module:
    """Build the network that the setting ``model`` names; a user's own from the copy in the run, if there is one."""
    model = config.model
    own = networks.custom_source(model)
    if own and run and run.model_source.is_file():
        model = f"{run.model_source}:{own[1]}" + networks.GRAFTED * model.endswith(networks.GRAFTED)
    return networks.build(model, config.input.image_shape, config.input.classes)
