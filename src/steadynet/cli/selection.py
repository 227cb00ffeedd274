"""Which properties of which network a command is about."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steadynet.cli.command import add_data, add_radii, add_run, positive_integer
from steadynet.cli.parsing import Parser

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
        radii: The radii, each once.
    """

    trained: TrainedNetwork
    dataset: Dataset
    data: str
    index: Tensor
    radii: list[float]


def add_selection(parser: Parser) -> None:
    """Add the arguments that :func:`select` reads."""
    add_run(parser)
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
    """Load the run and pick the first test images of each class."""
    from steadynet import data
    from steadynet.networks import check_classifies
    from steadynet.runs.trained import load_trained
    from steadynet.training.notation import parse_radius

    trained = load_trained(arguments.run)
    radii = list(dict.fromkeys(parse_radius(text) for text in arguments.eps or [trained.config.eps]))
    dataset = data.load(arguments.data) if arguments.data else trained.data()
    check_classifies(trained.network, dataset.image_shape, dataset.class_count)
    index = dataset.test.first_of_each_class(arguments.per_class, dataset.class_count)
    return Selection(trained, dataset, arguments.data or trained.config.data, index, radii)
