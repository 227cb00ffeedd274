"""Which properties of which network a command is about."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from steadynet.cli.command import add_data, add_network, add_radii, positive_integer
from steadynet.cli.parsing import Parser
from steadynet.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from steadynet.data import Dataset
    from steadynet.runs.trained import TrainedNetwork


@dataclass(frozen=True, eq=False)
class Selection:
    """Test images around which the network of a run is verified, and the radii.

    Attributes:
        trained: The network with its run directory.
        dataset: The data set that the images are from.
        data: The name of the data set, or the path of its file.
        index: The positions of the chosen images in the test set.
        radii: The radii, each once; none if the regions are others than ε-boxes.
    """

    trained: TrainedNetwork
    dataset: Dataset
    data: str
    index: Tensor
    radii: list[float]


def add_selection(parser: Parser, run_flag: str = "--out") -> None:
    """Add the arguments that :func:`select` reads; ``run_flag`` is for networks that were trained elsewhere."""
    add_network(parser, run_flag)
    add_radii(parser)
    parser.add_argument(
        "--per-class",
        type=positive_integer,
        default=10,
        metavar="N",
        help="take the first N test images of each class (default: 10)",
    )
    add_data(parser)


def select(arguments: argparse.Namespace) -> Selection:
    """Load the network and pick the first test images of each class."""
    trained = open_network(arguments)
    return select_images(arguments, trained, chosen_radii(arguments, trained))


def select_images(arguments: argparse.Namespace, trained: TrainedNetwork, radii: list[float]) -> Selection:
    """Pick the first test images of each class; of a network from elsewhere, a class may have fewer."""
    name, dataset = test_data(arguments, trained)
    fewer = trained.config.is_imported
    index = dataset.test.first_of_each_class(arguments.per_class, dataset.class_count, at_most=fewer)
    return Selection(trained, dataset, name, index, radii)


def open_network(arguments: argparse.Namespace) -> TrainedNetwork:
    """Load the network of a run, or import one that was trained elsewhere.

    Raises:
        UserError: There is no such network, or it does not fit the data.
    """
    from steadynet.runs.imported import ForeignNetwork, import_network, is_foreign
    from steadynet.runs.trained import load_trained

    if not is_foreign(arguments.run):
        for name in ("weights", "mean", "std", "imported_run"):
            if getattr(arguments, name) is not None:
                flag = name.replace("imported_run", "out")
                raise UserError(f"--{flag} is for networks that were trained elsewhere, and {arguments.run} is none")
        if Path(arguments.run).is_file():
            raise UserError(f"{arguments.run} is no network: give a run directory, an ONNX file, or file.py:factory")
        return load_trained(arguments.run)
    if not arguments.data:
        raise UserError(f"say which images to test {arguments.run} with: --data DATA, such as images.npz or a folder")
    mean, std = (None if given is None else tuple(given) for given in (arguments.mean, arguments.std))
    return import_network(
        ForeignNetwork(arguments.run, arguments.weights, mean, std), arguments.data, arguments.imported_run
    )


def chosen_radii(arguments: argparse.Namespace, trained: TrainedNetwork) -> list[float]:
    """Return the radii that the user gave, each once, or the one that the run was trained for."""
    from steadynet.training.notation import parse_radius

    if not arguments.eps and not trained.config.eps > 0:
        raise UserError(f"{arguments.run} was not trained here: give the radii, such as --eps 0.01 or --eps 2/255")
    return list(dict.fromkeys(parse_radius(text) for text in arguments.eps or [trained.config.eps]))


def test_data(arguments: argparse.Namespace, trained: TrainedNetwork) -> tuple[str, Dataset]:
    """Load the data set to test with. Its name says where it is from.

    All images of a user's own file test a network that was trained elsewhere. A run that was trained here may have seen
    four fifths of them.
    """
    from steadynet import data
    from steadynet.networks import check_classifies

    foreign = trained.config.is_imported
    name = arguments.data or trained.config.data
    name = data.only_tests(name) if foreign else name
    dataset = data.load(name)
    if foreign and dataset.class_count < trained.config.input.classes:
        dataset = replace(dataset, classes=tuple(str(label) for label in range(trained.config.input.classes)))
    check_classifies(trained.network, dataset.image_shape, dataset.class_count)
    return name, dataset
