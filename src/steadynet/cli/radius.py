"""``steadynet radius``."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import TYPE_CHECKING

from steadynet.cli.command import Command, add_data, add_json, add_network, add_threads, positive_integer, use_threads
from steadynet.cli.parsing import Parser
from steadynet.cli.plugin_flags import add_verifier, add_verifier_settings, given_verifier
from steadynet.cli.selection import open_network, select_images
from steadynet.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from steadynet.verification.radius import Radius

TIMEOUT = 10.0  # seconds for one radius of one image
LISTED = 20  # images


def _configure(parser: Parser) -> None:
    add_network(parser)
    parser.add_argument("--max-eps", default="0.5", metavar="RADIUS", help="the largest radius to try (default: 0.5)")
    parser.add_argument(
        "--tolerance",
        default="0.002",
        metavar="WIDTH",
        help="stop when the proved and the refuted radius of an image are this close (default: 0.002)",
    )
    parser.add_argument(
        "--per-class",
        type=positive_integer,
        default=2,
        metavar="N",
        help="take the first N test images of each class (default: 2)",
    )
    add_data(parser)
    add_verifier(parser)
    add_threads(parser)
    add_json(parser)
    add_verifier_settings(parser)


def _run(arguments: argparse.Namespace) -> None:
    import torch

    from steadynet.cli.display.terminal import messages, progress_bar
    from steadynet.training.notation import parse_radius
    from steadynet.verification.given import in_precision_of
    from steadynet.verification.radius import RadiusSearch
    from steadynet.verification.radius_table import rows_of, write_radii
    from steadynet.verification.verifiers import make_verifier

    verifier = make_verifier(arguments.verifier, {"timeout": TIMEOUT} | given_verifier(arguments))
    most, tolerance = parse_radius(arguments.max_eps), parse_radius(arguments.tolerance)
    use_threads(arguments)
    chosen = select_images(arguments, open_network(arguments), [])
    trained, test, index = chosen.trained, chosen.dataset.test, chosen.index
    pixels, labels = in_precision_of(trained.network, test.pixels(index)), test.labels[index]
    torch.manual_seed(0)
    search = RadiusSearch(trained.network, pixels, labels, verifier, most, tolerance)
    try:
        with progress_bar() as progress:
            task = progress.add_task("halving", total=1.0, note="")
            search.run(lambda share: progress.update(task, completed=share, note=_note(search.found)))
    except KeyboardInterrupt:
        messages.print("stopped: what is known so far is written; every radius in it is right, if not the best")
    rows = rows_of(search, index.tolist(), chosen.data)
    write_radii(trained.run, rows, search.found)
    written = [trained.run.radii, *_curve(search.found, most, trained.run.path)]
    if arguments.json:
        from dataclasses import asdict

        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
        return
    _show(str(trained.run.path), search.found, index.tolist(), labels.tolist(), most, written)


def _note(found: list[Radius]) -> str:
    return f"median proved {statistics.median(radius.proved for radius in found):.3g}"


def _curve(found: list[Radius], most: float, folder: Path) -> list[Path]:
    from steadynet.report.radius_curve import write_radius_curve

    try:
        return write_radius_curve(found, most, folder)
    except UserError:  # without matplotlib there is no figure
        return []


def _show(
    name: str, found: list[Radius], index: list[int], labels: list[int], most: float, written: list[Path]
) -> None:
    from steadynet.cli.display.tables import table
    from steadynet.cli.display.terminal import console

    order = sorted(range(len(found)), key=lambda row: found[row].proved)
    table(
        f"{name}: the radius up to which an image keeps its label"
        + (f" (the {LISTED} least robust of {len(found)} images)" if len(found) > LISTED else ""),
        ["image", "label", "proved to ε", "refuted from ε"],
        [
            [index[row], labels[row], f"{found[row].proved:.4g}", _refuted(found[row], most)]
            for row in order[:LISTED]
        ],
    )  # fmt: skip
    proved = [radius.proved for radius in found]
    console.print(
        f"median of {len(found)} images: proved to ε {statistics.median(proved):.4g}; "
        f"smallest {min(proved):.4g}, largest {max(proved):.4g}",
        soft_wrap=True,
    )
    console.print(f"written: {', '.join(map(str, written))}", soft_wrap=True, markup=False)


def _refuted(radius: Radius, most: float) -> str:
    return f"above {most:g}" if radius.refuted is None else f"{radius.refuted:.4g}"


COMMAND = Command(
    summary="find the largest radius proved for each image",
    description=(
        "For each test image, find the largest radius ε at which the network is proved to keep its label, and the "
        "smallest one with a counterexample, by halving. Writes radii.csv and a curve of certified accuracy against ε "
        "into the run directory. If you stop it, what is known so far is written."
    ),
    usage="NETWORK [--max-eps RADIUS] [--tolerance WIDTH] [--per-class N] [options]",
    examples=(
        "steadynet radius runs/first --per-class 1 --timeout 2",
        "steadynet radius net.onnx --data images.npz --max-eps 0.1    # a network from elsewhere",
    ),
    configure=_configure,
    run=_run,
)
