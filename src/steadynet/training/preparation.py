"""What happens before the first batch: check the place, build the network, write the first files."""

from __future__ import annotations

import dataclasses
import shutil
from functools import partial
from pathlib import Path
from typing import Literal

from torch import nn

from steadynet import data as data_sets
from steadynet import networks, objectives
from steadynet.errors import UserError
from steadynet.files import disk_errors, write_atomically
from steadynet.graph.graph_network import GraphNetwork
from steadynet.runs.config import InputFacts, RunConfig
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import load_tensors, load_weights
from steadynet.runs.trained import build_network, finished_run
from steadynet.training.settings import TrainingSettings

SMALLEST_STD = 1e-3  # of a channel, so that normalisation never divides by zero


def check_place(run: RunDirectory, settings: TrainingSettings, overwrite: bool) -> None:
    """Check that a new run may be written to its directory.

    Raises:
        UserError: The directory holds something else, a run that must not be replaced, or the run whose weights are to
            be loaded.
    """
    with disk_errors(run.path):
        if settings.init and Path(settings.init).resolve() == run.path.resolve():
            raise UserError(f"{run.path} cannot be both --init and --out")
        if run.is_free():
            return
        if not run.is_run():
            raise UserError(f"{run.path} exists and is not a run directory: choose another --out")
        if not overwrite:
            raise UserError(f"{run.path} exists: give --resume to continue it, or --overwrite to replace it")


def open_run(run: RunDirectory, settings: TrainingSettings, config: RunConfig, overwrite: bool) -> None:
    """Write the first files of a new run. With ``overwrite``, remove those of the old one first."""
    if overwrite and run.path.is_dir():
        run.clear()
    run.write_config(config)
    keep_sources(run, settings)


def keep_sources(run: RunDirectory, settings: TrainingSettings) -> None:
    """Copy the user's own files, of the model and of methods, into the run directory, unless copies are there."""
    if networks.is_onnx(settings.model) and not run.network_file.is_file():
        from steadynet.runs.onnx_network import copy_model

        copy_model(Path(settings.model), run.network_file)
    own = networks.custom_source(settings.model)
    copies = {run.model_source: own[0]} if own else {}
    for path in objectives.user_files(phase.method for phase in settings.plan):
        copies[run.method_sources / path.name] = path
    for copy, source in copies.items():
        if source.is_file() and not copy.is_file():
            write_atomically(copy, partial(shutil.copyfile, source))


def input_facts(settings: TrainingSettings, dataset: data_sets.Dataset) -> InputFacts:
    """Return what the data decides about the network, with the statistics of its pixels if they are normalised."""
    facts = InputFacts(dataset.image_shape, dataset.class_count)
    if not settings.normalise:
        return facts
    pixels = dataset.split(settings.validation, settings.seed)[0].pixels()
    axes = (0, *range(2, pixels.dim()))
    mean, std = pixels.mean(axes), pixels.std(axes, correction=0).clamp_min(SMALLEST_STD)
    return dataclasses.replace(facts, mean=tuple(mean.tolist()), std=tuple(std.tolist()))


def fitting_network(
    given: nn.Module | None, config: RunConfig, dataset: data_sets.Dataset, run: RunDirectory | None = None
) -> nn.Module:
    """Build the network that the configuration names, or take the given one, and check that it fits the data.

    Raises:
        UserError: The network cannot take the images, or has another number of classes.
    """
    network = networks.check_classifies(build_network(config, run, given), dataset.image_shape, dataset.class_count)
    if isinstance(network, GraphNetwork):
        network.make_trainable()
    return network


def with_onnx_network(settings: TrainingSettings) -> TrainingSettings:
    """Return the settings for a training that starts from an ONNX file: it says the network and its weights."""
    if settings.init and networks.is_onnx(settings.init):
        settings = dataclasses.replace(settings, model=settings.init, init=None)
    if networks.is_onnx(settings.model):
        settings = dataclasses.replace(settings, initialisation="default")
    return settings


def with_initialisation(settings: TrainingSettings, network: nn.Module) -> TrainingSettings:
    """Return the settings with the initialisation ``auto`` replaced by the one that fits the network."""
    if settings.initialisation != "auto":
        return settings
    fitting: Literal["default", "ibp"] = "ibp" if networks.suits_narrow_intervals(network) else "default"
    return dataclasses.replace(settings, initialisation=fitting)


def set_initial_weights(network: nn.Module, settings: TrainingSettings) -> None:
    """Load the weights of the run ``init``, or draw those for interval bounds, if the settings ask for it."""
    if settings.init:
        run = finished_run(settings.init)
        load_weights(network, load_tensors(run.weights)[0], run.weights)
    elif settings.initialisation == "ibp":
        networks.initialise_for_intervals(network)
