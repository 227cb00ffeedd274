"""Tiny trainings for the tests, in this process and in ones that get killed."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.torch import load_file

import steadynet.files
from steadynet.cli import COMMANDS, main
from steadynet.cli.display.training import TrainingDisplay
from steadynet.cli.parsing import Parser, given_settings
from steadynet.cli.train import TRAINING
from steadynet.runs.directory import RunDirectory
from steadynet.training.loop import resume, train
from steadynet.training.settings import TrainingSettings, resolve

MODELS = """
from math import prod

from torch import nn


def tiny(image_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(image_shape), 8), nn.ReLU(), nn.Linear(8, classes))


def fragile(image_shape, classes):
    "Everything that makes going on hard: batch norm, dropout, and convolutions, which run channels-last."
    return nn.Sequential(
        nn.Conv2d(image_shape[0], 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 6, 2), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.LazyLinear(classes),
    )


def eleven_classes():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.ReLU(), nn.Linear(4, 11))


def without_relu(image_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(image_shape), classes))


def without_weights(image_shape, classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d((1, classes)), nn.Flatten(), nn.ReLU())


def with_batch_norm(image_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


def tied(image_shape, classes):
    square = nn.Linear(8, 8)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), square, nn.ReLU(), square, nn.ReLU(), nn.Linear(8, classes)
    )


def failing(image_shape, classes):
    raise KeyError("boom")


def no_network():
    return 3


def hungry(appetite):
    return None
"""

IMAGES = 4 * (60 - 12 - 5)  # of each of four classes, a fifth is for the test, a tenth of the rest for validation
BATCHES = 6  # of 32


def write_inputs(folder: Path) -> None:
    """A model file and a small data set of four classes, told apart by the brightest quarter of 6×6 pixels."""
    (folder / "net.py").write_text(MODELS)
    generator = np.random.default_rng(0)
    labels = np.arange(240) % 4
    images = generator.integers(0, 120, (240, 6, 6), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 2)
        image[3 * row : 3 * row + 3, 3 * column : 3 * column + 3] += 120
    np.savez(folder / "small.npz", X=images, y=labels)


def tiny(folder: Path, **changes: object) -> list[str]:
    """The flags of a training that takes a moment."""
    settings = {"data": folder / "small.npz", "model": f"{folder / 'net.py'}:tiny", "method": "natural", "epochs": 2}
    settings |= {"batch_size": 32, "lr": 0.01} | changes
    flags = [(f"--{key.replace('_', '-')}", str(value)) for key, value in settings.items() if value is not None]
    return [word for flag in flags for word in flag]


def settings_from(flags: list[str]) -> TrainingSettings:
    """The settings that flags say."""
    parser = Parser()
    COMMANDS["train"].configure(parser)
    return resolve(given_settings(parser.parse_args(flags), TRAINING))


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "weights.safetensors")


def same_weights(one: Path, other: Path) -> bool:
    """Whether two runs ended in the same bits."""
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def epochs_of(run: Path) -> list[int]:
    return [row.epoch for row in RunDirectory(run).read_metrics()]


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, to see that nothing changed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


# Processes that can be killed: forked from a server that has imported torch already, so they start in a moment.

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        "steadynet.cli.display.training",
        "steadynet.training.loop",
        "steadynet.cli.display.experiment",
        "steadynet.experiments.jobs",
        "torch._dynamo",  # Adam imports that one
    ]
)


def start(target, *arguments) -> multiprocessing.process.BaseProcess:
    process = _PROCESSES.Process(target=target, args=arguments)
    process.start()
    return process


def finish(target, *arguments) -> int:
    """The exit code of a process of its own."""
    process = start(target, *arguments)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def command_line(arguments: list[str], output: Path) -> None:
    """``steadynet`` in a process of its own, everything it says in one file."""
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    sys.exit(main(arguments))


def signalled_command_line(arguments: list[str], output: Path, number: int, epoch: int, batch: int) -> None:
    """The same, with a signal sent to itself after one batch."""
    original = TrainingDisplay.on_batch

    def on_batch(self, position, phase, radius):
        original(self, position, phase, radius)
        if (position.epoch, position.batch) == (epoch, batch):
            os.kill(os.getpid(), number)

    TrainingDisplay.on_batch = on_batch
    command_line(arguments, output)


def command_line_killed_at_write(arguments: list[str], output: Path, write: int) -> None:
    """The same, killed just before the given write is put into its place."""
    original, writes = os.replace, iter(range(write))

    def replace(source, target):
        if next(writes, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        original(source, target)

    steadynet.files.os.replace = replace
    command_line(arguments, output)


def command_line_on_a_full_disk(arguments: list[str], output: Path, largest_file: int) -> None:
    """The same, where no file can be larger than a few bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    command_line(arguments, output)


def train_or_go_on(settings, out: Path) -> None:
    """A training through Python, on data that is augmented."""
    torch.set_num_threads(1)
    images = torch.rand(150, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    part = SimpleNamespace(images=images, labels=torch.arange(150) % 3)
    data = SimpleNamespace(train=part, test=part, classes=("a", "b", "c"), augment=True)
    if (out / "config.toml").is_file():
        resume(out, data=data)
    else:
        train(settings, out, data=data)
