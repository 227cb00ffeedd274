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
    add_radii,
    add_run,
    add_threads,
    positive_integer,
    use_threads,
)
from steadynet.cli.parsing import Parser

if TYPE_CHECKING:
    from steadynet.runs.evaluation import Evaluation


def _configure(parser: Parser) -> None:
    add_run(parser)
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

    from steadynet import data
    from steadynet.cli.display.terminal import console, progress_bar
    from steadynet.devices import DEVICES, full_precision, pick_device
    from steadynet.networks import check_classifies
    from steadynet.runs.evaluation import evaluate, write_evaluation
    from steadynet.runs.trained import load_trained
    from steadynet.training.notation import parse_radius

    use_threads(arguments)
    device = pick_device(arguments.device, DEVICES)
    trained = load_trained(arguments.run)
    radii = [parse_radius(text) for text in arguments.eps or [trained.config.eps]]
    dataset = data.load(arguments.data) if arguments.data else trained.data()
    check_classifies(trained.network, dataset.image_shape, dataset.class_count)
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
        [[f"{row.eps:.4g}", percent(row.pgd_accuracy), percent(row.stable_share_ibp)] for row in result.radii],
    )


COMMAND = Command(
    summary="measure test accuracy, accuracy under attack and stable neurons",
    description=(
        "Measure the accuracy of a trained network on test images, its accuracy under the PGD attack, and the "
        "share of its neurons that are stable. Nothing is proved; that is what verify is for."
    ),
    usage="RUN [--eps RADIUS ...] [options]",
    examples=(
        "steadynet evaluate runs/first --eps 0.1 0.2 0.3",
        "steadynet evaluate runs/first --eps 0.1 --images 100 --pgd-steps 20    # quicker and rougher",
    ),
    configure=_configure,
    run=_run,
)
