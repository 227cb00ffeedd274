"""Networks that were trained elsewhere. Each gets a run directory, so that every command can work with it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from steadynet import data as data_sets
from steadynet import networks
from steadynet.errors import UserError, one_line
from steadynet.files import disk_errors, write_atomically
from steadynet.networks import is_onnx
from steadynet.runs.config import IMPORTED, InputFacts, RunConfig
from steadynet.runs.directory import RunDirectory
from steadynet.runs.onnx_network import copy_model, network_for_images
from steadynet.runs.tensors import load_weights, save_tensors
from steadynet.runs.trained import TrainedNetwork, load_trained

WRAPPED_IN = ("state_dict", "model_state_dict", "model")  # entries of checkpoints that hold the weights


@dataclass(frozen=True)
class ForeignNetwork:
    """Where a network that was trained elsewhere is, and how it takes its images.

    Attributes:
        source: An ONNX file, or ``file.py:factory``.
        weights: The weights of a factory's network: a state dictionary, as ``.pt`` or ``.safetensors``.
        mean: The mean of each channel, if images must be normalised before the network.
        std: Their standard deviation, likewise.
    """

    source: str
    weights: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise UserError("--mean and --std belong together: give both, or none")
        if self.std is not None and not all(value > 0 for value in self.std):
            raise UserError(f"--std {' '.join(map(str, self.std))}: standard deviations are larger than 0")
        if is_onnx(self.source) and self.weights:
            raise UserError(f"{self.source} has its own weights: leave out --weights")
        if not is_onnx(self.source) and not self.weights:
            raise UserError(f"{self.source} has no weights: give them with --weights FILE.pt or FILE.safetensors")

    def fingerprint(self, shape: Sequence[int]) -> str:
        """Return a SHA-256 hash of the network's files and of how it takes its images."""
        digest = hashlib.sha256(repr((self.mean, self.std, tuple(shape))).encode())
        for file in (self.source if is_onnx(self.source) else self.source.rpartition(":")[0], self.weights):
            if file:
                digest.update(_content(Path(file)))
        return digest.hexdigest()


def is_foreign(source: str) -> bool:
    """Return whether a name is that of a network that was trained elsewhere, not that of a run directory.

    >>> is_foreign("net.onnx"), is_foreign("mine.py:factory"), is_foreign("runs/first")
    (True, True, False)
    """
    return not Path(source).is_dir() and (is_onnx(source) or networks.custom_source(source) is not None)


def import_network(foreign: ForeignNetwork, data: str, out: str | Path | None = None) -> TrainedNetwork:
    """Make a run directory of a network that was trained elsewhere, or open the one that was made before.

    Args:
        foreign: The network.
        data: The images to test it with: a name or a path that :func:`steadynet.data.load` takes. All images of a file
            or folder of your own are test images.
        out: The run directory; ``runs/NAME`` unless given.

    Returns:
        The network with its run directory.

    Raises:
        UserError: The network or the data cannot be read, they do not fit together, or the run directory is that of
            another network.
    """
    run = RunDirectory(Path(out)) if out is not None else RunDirectory.of_network(foreign.weights or foreign.source)
    images = data_sets.load(data_sets.only_tests(data)).test
    shape = tuple(images.images.shape[1:])
    fingerprint = foreign.fingerprint(shape)
    if run.is_run():
        return _opened(run, foreign, fingerprint)
    if not run.is_free():
        raise UserError(f"{run.path} exists and is not a run directory: choose another --out")
    network = _network(foreign, shape, int(images.labels.max()) + 1)
    classes = _class_count(network, shape, foreign.source)
    if int(images.labels.max()) >= classes:
        raise UserError(f"{data} has a label {int(images.labels.max())}, but {foreign.source} has {classes} classes")
    settings = {
        "data": data_sets.only_tests(data),
        "model": foreign.source,
        "method": IMPORTED,
        "eps": 0.0,
        "fingerprint": fingerprint,
    }
    facts = InputFacts(shape, classes, foreign.mean, foreign.std)
    _write(run, foreign, RunConfig(settings, facts), network)
    return load_trained(run.path)


def _opened(run: RunDirectory, foreign: ForeignNetwork, fingerprint: str) -> TrainedNetwork:
    """Open the run directory that was made of a network before, if it is still the same network."""
    config = run.read_config()
    if not config.is_imported:
        raise UserError(f"{run.path} is a run of another network, {config.model}: choose another --out")
    if config.settings.get("fingerprint") != fingerprint:
        raise UserError(
            f"{run.path} is about another network than {foreign.source} as it is now: "
            "choose another --out, or remove it"
        )
    return load_trained(run.path)


def _write(run: RunDirectory, foreign: ForeignNetwork, config: RunConfig, network: nn.Module) -> None:
    own = networks.custom_source(foreign.source)
    with disk_errors(run.path):
        run.path.mkdir(parents=True, exist_ok=True)
        if own:
            write_atomically(run.model_source, lambda temporary: shutil.copyfile(own[0], temporary))
        else:
            copy_model(Path(foreign.source), run.network_file)
        save_tensors(run.weights, network.state_dict(), {})
    run.write_config(config)


def _network(foreign: ForeignNetwork, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build the network with its weights, and with the normalisation before it."""
    if is_onnx(foreign.source):
        return network_for_images(foreign.source, shape, foreign.mean, foreign.std)
    own = networks.custom_source(foreign.source)
    assert own is not None
    assert foreign.weights is not None
    network = networks.load_factory(*own, shape, classes)
    load_weights(network, read_weights(Path(foreign.weights)), Path(foreign.weights))
    if foreign.mean is not None and foreign.std is not None:
        network = nn.Sequential(networks.Normalise(foreign.mean, foreign.std, len(shape)), network)
    return network.eval()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a state dictionary that was written by ``torch.save`` or as safetensors. No code in the file is run.

    Raises:
        UserError: The file cannot be read, or holds something else.
    """
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    try:
        found: Any = load_file(path) if path.suffix == ".safetensors" else _load_pickle(path)
    except (SafetensorError, OSError, ValueError, RuntimeError, EOFError) as error:
        raise UserError(f"{path} cannot be read: {one_line(error)}") from error
    for name in WRAPPED_IN:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{path} holds no weights by name: write them with torch.save(model.state_dict(), path)")
    prefix = "module."  # of networks that were trained by DataParallel
    strip = bool(found) and all(name.startswith(prefix) for name in found)
    return {name.removeprefix(prefix) if strip else name: value for name, value in found.items()}


def _load_pickle(path: Path) -> Any:
    import pickle

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} holds more than weights (a whole module, say), which is not read because it may run code: "
            "write torch.save(model.state_dict(), path)"
        ) from error


def _class_count(network: nn.Module, shape: tuple[int, ...], source: str) -> int:
    """Return the number of scores that the network gives an image."""
    weight = next((value for value in network.state_dict().values() if value.is_floating_point()), torch.zeros(()))
    try:
        with torch.no_grad():
            scores = network(torch.zeros(1, *shape, dtype=weight.dtype))
    except Exception as error:  # the user's network may fail in any way
        raise UserError(f"{source} cannot take images of shape {shape}: {one_line(error)}") from error
    if not isinstance(scores, Tensor) or scores.dim() != 2:
        raise UserError(f"{source} gives an image no vector of scores, one per class")
    if scores.shape[1] < 2:
        raise UserError(
            f"{source} gives an image a single score: export it with one score per class (for a yes/no logit z, "
            "the two scores 0 and z)"
        )
    return int(scores.shape[1])


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {one_line(error)}") from error
