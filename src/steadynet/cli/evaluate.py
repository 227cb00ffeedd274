"""``steadynet evaluate``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from steadynet.cli.command import (
    Command,
    add_data,
    add_device,
    add_json,
    add_network,
    add_radii,
    add_threads,
    positive_integer,
    use_threads,
)
from steadynet.cli.parsing import Parser
from steadynet.cli.selection import chosen_radii, open_network, test_data
from steadynet.training.notation import written_radius

if TYPE_CHECKING:
    from steadynet.runs.evaluation import Evaluation


def _configure(parser: Parser) -> None:
    add_network(parser)
    add_radii(parser)
    parser.add_argument(
        "--pgd-steps", type=positive_integer, default=100, metavar="N", help="steps of the PGD attack (default: 100)"
    )
    parser.add_argument(
        "--restarts",
        type=positive_integer,
        default=1,
        metavar="N",
        help="how often the attack starts from a new random point (default: 1)",
    )
    parser.add_argument(
        "--images", type=positive_integer, metavar="N", help="use only the first N test images (default: all)"
    )
    add_data(parser)
    add_threads(parser)
    add_device(parser, "compute")
    add_json(parser)


def _run(arguments: argparse.Namespace) -> None:
    import torch

    from steadynet.cli.display.terminal import console, progress_bar
    from steadynet.devices import DEVICES, full_precision, pick_device
    from steadynet.runs.evaluation import evaluate, write_evaluation

    use_threads(arguments)
    device = pick_device(arguments.device, DEVICES)
    trained = open_network(arguments)
    radii = chosen_radii(arguments, trained)
    _, dataset = test_data(arguments, trained)
    images = dataset.test.subset(torch.arange(min(arguments.images or len(dataset.test), len(dataset.test))))
    torch.manual_seed(0)
    with progress_bar() as progress, full_precision(device):
        task = progress.add_task("attacking", total=len(images) * len(radii), note="")
        result = evaluate(
            trained.network.to(device),
            images,
            radii,
            pgd_steps=arguments.pgd_steps,
            restarts=arguments.restarts,
            on_images=lambda done: progress.advance(task, done),
        )
    if arguments.json:
        sys.stdout.write(json.dumps(result.to_json(), indent=2) + "\n")
    else:
        _show(str(trained.run.path), result)
    write_evaluation(trained.run, result)  # shown first, so that a full disk loses nothing
    if not arguments.json:
        console.print(f"written: {trained.run.evaluation}", soft_wrap=True)


def _show(name: str, result: Evaluation) -> None:
    from steadynet.cli.display.numbers import percent
    from steadynet.cli.display.tables import table

    table(
        f"{name}: test accuracy {percent(result.accuracy)} of {result.images} images",
        ["ε", f"PGD-{result.pgd_steps} accuracy", "stable neurons (ibp)"],
        [[written_radius(row.eps), percent(row.pgd_accuracy), percent(row.stable_share_ibp)] for row in result.radii],
    )


COMMAND = Command(
    summary="measure test accuracy, accuracy under attack and stable neurons",
    description=(
        "Measure the accuracy of a trained network on test images, its accuracy under the PGD attack, and the "
        "share of its neurons that are stable. Nothing is proved; that is what verify is for."
    ),
    usage="NETWORK [--eps RADIUS ...] [options]",
    examples=(
        "steadynet evaluate runs/first --eps 0.1 0.2 0.3",
        "steadynet evaluate runs/first --eps 0.1 --images 100 --pgd-steps 20    # quicker and rougher",
    ),
    configure=_configure,
    run=_run,
)
