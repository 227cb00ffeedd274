"""Which properties of which network a command is about: a run, some test images of each class, some radii."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steadynet.cli.command import count
from steadynet.cli.parsing import Parser

if TYPE_CHECKING:
    from torch import Tensor

    from steadynet.data import Dataset
    from steadynet.runs.trained import TrainedNetwork


@dataclass(frozen=True, eq=False)
class Selection:
    """A trained network, data, the test images by their index there, and radii."""

    trained: TrainedNetwork
    dataset: Dataset
    data: str
    index: Tensor
    radii: list[float]


def add_selection(parser: Parser) -> None:
    """The arguments that ``select`` reads."""
    parser.add_argument("run", metavar="RUN", help="a finished run directory")
    parser.add_argument("--eps", nargs="+", metavar="RADIUS", help="radii; the one trained for unless given")
    parser.add_argument("--per-class", type=count, default=10, metavar="N", help="test images of each class [10]")
    parser.add_argument("--data", metavar="DATA", help="another data set than the run's")


def select(arguments: argparse.Namespace) -> Selection:
    """The properties asked for: the first test images of each class, at each radius."""
    from steadynet import data
    from steadynet.networks import check_classifies
    from steadynet.runs.trained import load_trained
    from steadynet.training.settings import parse_radius

    trained = load_trained(arguments.run)
    radii = list(dict.fromkeys(parse_radius(text) for text in arguments.eps or [trained.config.eps]))
    dataset = data.load(arguments.data) if arguments.data else trained.data()
    check_classifies(trained.network, dataset.image_shape, dataset.class_count)
    index = dataset.test.first_of_each_class(arguments.per_class, dataset.class_count)
    return Selection(trained, dataset, arguments.data or trained.config.data, index, radii)
