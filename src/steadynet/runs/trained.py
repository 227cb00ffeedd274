"""A trained network back from its run directory."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from steadynet import data, networks
from steadynet.errors import UserError
from steadynet.networks import Normalise
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import load_tensors, load_weights


@dataclass(frozen=True)
class TrainedNetwork:
    """The network in evaluation mode, on the CPU, with the configuration it was trained by."""

    network: nn.Module
    config: dict[str, Any]
    run: RunDirectory

    def data(self) -> data.Dataset:
        """The data it was trained on."""
        return data.load(self.config["data"])


def load_trained(path: str | Path, network: nn.Module | None = None) -> TrainedNetwork:
    """The network of a finished run; one that was given to ``train`` in Python is given again."""
    run = finished(path)
    config = run.read_config()
    tensors, _ = load_tensors(run.weights)
    network = build_network(config, run, network)
    load_weights(network, tensors, run.weights)
    return TrainedNetwork(network.eval(), config, run)


def finished(path: str | Path) -> RunDirectory:
    """A run that has its weights."""
    run = RunDirectory.existing(path)
    if not run.weights.is_file():
        raise UserError(f"{path} is not finished: steadynet train --resume --out {shlex.quote(str(path))}")
    return run


def build_network(config: dict[str, Any], run: RunDirectory | None = None, given: nn.Module | None = None) -> nn.Module:
    """The network that a configuration describes, with fresh weights; or the one given, normalised if it says so.

    ``[input]`` holds what the data decided: the image shape, the classes, and the statistics of normalisation.
    """
    facts = config["input"]
    network = given if given is not None else _configured(config, run)
    if "mean" not in facts:
        return network
    return nn.Sequential(Normalise(facts["mean"], facts["std"], len(facts["image_shape"])), network)


def _configured(config: dict[str, Any], run: RunDirectory | None) -> nn.Module:
    facts, model = config["input"], config["model"]
    own = networks.custom_source(model)
    if own and run and run.model_source.is_file():
        model = f"{run.model_source}:{own[1]}"
    return networks.build(model, tuple(facts["image_shape"]), facts["classes"])
