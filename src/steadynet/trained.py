"""A trained network back from its run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from steadynet import data, networks
from steadynet.checkpoint import load_tensors, load_weights
from steadynet.errors import UserError
from steadynet.networks import Normalise
from steadynet.run_directory import RunDirectory


@dataclass(frozen=True)
class TrainedNetwork:
    """The network in evaluation mode, on the CPU, with the configuration it was trained by."""

    network: nn.Module
    config: dict[str, Any]
    run: RunDirectory

    def data(self) -> data.Dataset:
        """The data it was trained on."""
        return data.load(self.config["data"])


def load_trained(path: str | Path) -> TrainedNetwork:
    """The network of a finished run."""
    run = RunDirectory.existing(path)
    if not run.weights.is_file():
        raise UserError(f"{path} is not finished: steadynet train --resume --out {path}")
    config = run.read_config()
    tensors, _ = load_tensors(run.weights)
    network = build_network(config, run)
    load_weights(network, tensors, run.weights)
    return TrainedNetwork(network.eval(), config, run)


def build_network(config: dict[str, Any], run: RunDirectory | None = None) -> nn.Module:
    """The network that a configuration describes, with fresh weights.

    ``[input]`` holds what the data decided: the image shape, the classes, and the statistics of normalisation.
    """
    facts, model = config["input"], config["model"]
    own = networks.custom_source(model)
    if own and run and run.model_source.is_file():
        model = f"{run.model_source}:{own[1]}"
    network = networks.build(model, tuple(facts["image_shape"]), facts["classes"])
    if "mean" not in facts:
        return network
    return nn.Sequential(Normalise(facts["mean"], facts["std"]), network)
