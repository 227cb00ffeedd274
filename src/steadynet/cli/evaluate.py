"""``steadynet evaluate``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from steadynet.cli.command import Command, add_device, count
from steadynet.cli.parsing import Parser

if TYPE_CHECKING:
    from steadynet.runs.evaluation import Evaluation


def _configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="a finished run directory")
    parser.add_argument("--eps", nargs="+", metavar="RADIUS", help="radii; the one trained for unless given")
    parser.add_argument("--pgd-steps", type=count, default=100, metavar="N", help="steps of the attack [100]")
    parser.add_argument("--restarts", type=count, default=1, metavar="N", help="restarts of the attack [1]")
    parser.add_argument("--images", type=count, metavar="N", help="only the first N test images")
    parser.add_argument("--data", metavar="DATA", help="another data set than the run's")
    parser.add_argument("--threads", type=count, metavar="N", help="CPU threads")
    add_device(parser, "attack and measure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _run(arguments: argparse.Namespace) -> None:
    import torch

    from steadynet import data
    from steadynet.cli.display.terminal import console, progress_bar
    from steadynet.devices import DEVICES, full_precision, pick_device
    from steadynet.networks import check_classifies
    from steadynet.runs.evaluation import evaluate, write_evaluation
    from steadynet.runs.trained import load_trained
    from steadynet.training.settings import parse_radius

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
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
    write_evaluation(trained.run, result)  # after it is shown: a disk that is full loses nothing
    if not arguments.json:
        console.print(f"written: {trained.run.evaluation}", soft_wrap=True)


def _show(name: str, result: Evaluation) -> None:
    from steadynet.cli.display.tables import percent, table

    table(
        f"{name}: test accuracy {percent(result.accuracy)} of {result.images} images",
        ["ε", f"PGD-{result.pgd_steps} accuracy", "stable neurons (ibp)"],
        [[f"{row.eps:.4g}", percent(row.pgd_accuracy), percent(row.stable_share_ibp)] for row in result.radii],
    )


COMMAND = Command("test accuracy, accuracy under attack and stable neurons", _configure, _run)
