"""``steadynet verify`` with another region than an ε-box around each image."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from steadynet.cli.command import use_threads
from steadynet.cli.parsing import Parser
from steadynet.cli.plugin_flags import given_verifier
from steadynet.cli.selection import Selection, open_network, select_images
from steadynet.errors import UserError, one_line

if TYPE_CHECKING:
    from torch import Tensor

    from steadynet.regions import BoxRegion, LinearRegion
    from steadynet.verification.properties import Result

FLAGS = ("region", "brightness", "contrast", "patch", "channel_eps")
COLUMNS = ("region", "index", "label", "verdict", "seconds", "decided_by", "reason", "arithmetic", "guarantee")


def add_regions(parser: Parser) -> None:
    """Add the flags for regions other than ε-boxes."""
    group = parser.add_argument_group("other regions than an ε-box, one instead of --eps")
    group.add_argument(
        "--region", metavar="FILE.npz", help="arrays lower and upper: limits of each number, for all images or each one"
    )
    group.add_argument("--brightness", type=float, nargs=2, metavar=("LOW", "HIGH"), help="added to every pixel")
    group.add_argument("--contrast", type=float, nargs=2, metavar=("LOW", "HIGH"), help="multiplies every pixel")
    group.add_argument(
        "--patch", type=int, nargs=4, metavar=("TOP", "LEFT", "HEIGHT", "WIDTH"), help="anything inside a rectangle"
    )
    group.add_argument("--channel-eps", type=float, nargs="+", metavar="E", help="an ε per channel")


def wants_region(arguments: argparse.Namespace) -> bool:
    """Return whether the user asks for another region than an ε-box."""
    return any(getattr(arguments, name) is not None for name in FLAGS)


def verify_regions(arguments: argparse.Namespace) -> None:
    """Decide one region of each image, show the verdicts, and write them into the run directory."""
    import torch

    from steadynet.cli.display.terminal import progress_bar
    from steadynet.verification.given import in_precision_of
    from steadynet.verification.region_properties import decide_region
    from steadynet.verification.verifiers import make_verifier

    if arguments.eps or sum(getattr(arguments, name) is not None for name in FLAGS) > 1:
        raise UserError("give one region only: --eps, --region, --brightness, --contrast, --patch or --channel-eps")
    verifier = make_verifier(arguments.verifier, given_verifier(arguments))
    use_threads(arguments)
    chosen = select_images(arguments, open_network(arguments), [])
    network = chosen.trained.network
    pixels = in_precision_of(network, chosen.dataset.test.pixels(chosen.index))
    labels = chosen.dataset.test.labels[chosen.index]
    region = _region(arguments, chosen.index, len(chosen.dataset.test), pixels)
    torch.manual_seed(0)
    with progress_bar() as progress:
        task = progress.add_task("verifying", total=len(labels), note=region.name)
        results = decide_region(network, pixels, labels, region, verifier, lambda *_: progress.advance(task))
    _write(chosen, labels, region.name, results)
    _show(arguments, chosen, region.name, results)


def _region(arguments: argparse.Namespace, index: Tensor, count: int, pixels: Tensor) -> BoxRegion | LinearRegion:
    from steadynet import regions

    if arguments.region is not None:
        return _box_from(Path(arguments.region), index, count, pixels)
    if arguments.brightness is not None:
        return regions.brightness(*arguments.brightness)
    if arguments.contrast is not None:
        return regions.contrast(*arguments.contrast)
    if arguments.patch is not None:
        return regions.patch(*arguments.patch)
    return regions.per_channel(arguments.channel_eps)


def _box_from(path: Path, index: Tensor, count: int, pixels: Tensor) -> BoxRegion:
    """Read the limits of a box: (*image) for all images, or (test images, *image)."""
    import numpy as np
    import torch

    from steadynet import regions

    try:
        with np.load(path, allow_pickle=False) as stored:
            limits = [torch.from_numpy(np.asarray(stored[name], dtype=np.float64)) for name in ("lower", "upper")]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} cannot be read: it needs the arrays lower and upper ({one_line(error)})") from error
    per_image = [limit[index] if limit.shape == (count, *pixels.shape[1:]) else limit for limit in limits]
    for limit in per_image:
        if limit.shape not in (pixels.shape, pixels.shape[1:]):
            raise UserError(
                f"{path}: limits of shape {tuple(limit.shape)} fit neither one image, {tuple(pixels.shape[1:])}, "
                f"nor the {count} test images"
            )
    return regions.box(*per_image)


def _write(chosen: Selection, labels: Tensor, region: str, results: list[Result]) -> None:
    """Write ``regions.csv`` and the counterexamples, as ``.npy`` files."""
    import numpy as np

    from steadynet.files import disk_errors, write_text

    run = chosen.trained.run
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    with disk_errors(run.path):
        for index, label, result in zip(chosen.index.tolist(), labels.tolist(), results, strict=True):
            stated = (result.decided_by, result.reason, result.arithmetic, result.guarantee)
            row = [region, index, label, result.verdict.value, round(result.seconds, 6)]
            writer.writerow(row + ["" if value is None else str(value) for value in stated])
            if result.counterexample is not None:
                run.counterexamples.mkdir(exist_ok=True)
                name = f"{region.replace(' ', '-')}-image-{index}.npy"
                np.save(run.counterexamples / name, result.counterexample.cpu().numpy())
    write_text(run.regions, text.getvalue())


def _show(arguments: argparse.Namespace, chosen: Selection, region: str, results: list[Result]) -> None:
    from steadynet.cli.display.numbers import count_of, seconds
    from steadynet.cli.display.tables import table
    from steadynet.cli.display.terminal import console
    from steadynet.verification.results import WORDS

    counts = Counter(result.verdict for result in results)
    if arguments.json:
        summary = {word: counts[verdict] for verdict, word in WORDS.items()}
        sys.stdout.write(json.dumps({"region": region, "properties": len(results)} | summary, indent=2) + "\n")
        return
    rows = [[word, count_of(counts[verdict], len(results))] for verdict, word in WORDS.items() if counts[verdict]]
    spent = sum(result.seconds for result in results)
    table(f"{chosen.trained.run.path}: {len(results)} images, {region}", ["", "images"], rows)
    for reason, count in Counter(result.reason for result in results if result.reason).items():
        console.print(f"{count} × {reason}", soft_wrap=True, markup=False)
    console.print(f"{seconds(spent)} in all\nwritten: {chosen.trained.run.regions}", soft_wrap=True, markup=False)
