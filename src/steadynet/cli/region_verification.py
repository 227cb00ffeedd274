"""``steadynet verify`` with another region than an ε-box around each image."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from steadynet.cli.command import use_threads
from steadynet.cli.parsing import Parser
from steadynet.cli.plugin_flags import given_verifier
from steadynet.cli.selection import Selection, chosen_radii, open_network, select_images
from steadynet.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from steadynet.verification.asked import Asked
    from steadynet.verification.properties import Result
    from steadynet.verification.verifiers.base import OnResult, Verifier

FLAGS = ("region", "brightness", "contrast", "patch", "channel_eps")
CLAIMS = (
    "top K (the label is among the K best), never CLASS, within DELTA (of the outputs at the image), "
    "rises OUTPUT FEATURE [TOLERANCE] or falls OUTPUT FEATURE [TOLERANCE] (as the feature grows, in a box)"
)


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
    other = parser.add_argument_group("another claim than that the label stays")
    other.add_argument("--claim", nargs="+", metavar="WORD", help=CLAIMS)


def wants_region(arguments: argparse.Namespace) -> bool:
    """Return whether the user asks for another region than an ε-box, or for another claim than that the label stays."""
    return arguments.claim is not None or any(getattr(arguments, name) is not None for name in FLAGS)


def verify_regions(arguments: argparse.Namespace) -> None:
    """Decide what is asked of each image, show the verdicts, and write them into the run directory."""
    import torch

    from steadynet.cli.display.terminal import progress_bar
    from steadynet.verification.verifiers import make_verifier

    given = [name for name in FLAGS if getattr(arguments, name) is not None]
    if not given and len(arguments.eps or []) > 1:
        raise UserError("--claim is decided at one radius at a time: give one --eps")
    if len(given) + len(arguments.eps or []) > 1:
        raise UserError("give one region only: --eps, --region, --brightness, --contrast, --patch or --channel-eps")
    verifier = make_verifier(arguments.verifier, given_verifier(arguments))
    use_threads(arguments)
    chosen = select_images(arguments, open_network(arguments), [])
    asked = _asked(arguments, chosen)
    torch.manual_seed(0)
    with progress_bar() as progress:
        task = progress.add_task("verifying", total=len(chosen.index), note=asked.described())
        results = decide_asked(chosen, asked, verifier, lambda *_: progress.advance(task))
    _show(arguments, chosen, asked, results)


def _asked(arguments: argparse.Namespace, chosen: Selection) -> Asked:
    """Return what the user asks for, in words."""
    from steadynet.verification.asked import Asked
    from steadynet.verification.stored_verifier import as_typed

    claim = "" if arguments.claim is None else " ".join(arguments.claim)
    for name in FLAGS:
        value = getattr(arguments, name)
        if value is not None:
            words = value if isinstance(value, str) else " ".join(map(as_typed, value))
            return Asked(name.replace("_", "-"), words, claim)
    return Asked("eps", as_typed(chosen_radii(arguments, chosen.trained)[0]), claim)


def decide_asked(chosen: Selection, asked: Asked, verifier: Verifier, on_result: OnResult) -> list[Result]:
    """Decide a region and a claim for each image, and write ``regions.csv`` and the counterexamples."""
    from steadynet.regions import LinearRegion
    from steadynet.verification.claim_properties import decide_claim
    from steadynet.verification.given import in_precision_of
    from steadynet.verification.region_properties import decide_region
    from steadynet.verification.verdict_key import region_keys

    network, test, claim = chosen.trained.network, chosen.dataset.test, asked.the_claim()
    pixels, labels = in_precision_of(network, test.pixels(chosen.index)), test.labels[chosen.index]
    region = asked.region(chosen.index, len(test), pixels)
    if claim is None:
        results = decide_region(network, pixels, labels, region, verifier, on_result)
    elif isinstance(region, LinearRegion):
        raise UserError(f"a claim is decided in boxes, and {region.name} is none: leave out one of them")
    else:
        results = decide_claim(network, pixels, labels, region.around(pixels), claim, verifier, on_result)
    keys = region_keys(network, pixels, labels, region, asked.claim, verifier)
    _write(chosen, labels, asked, verifier, results, keys)
    return results


def _write(
    chosen: Selection, labels: Tensor, asked: Asked, verifier: Verifier, results: list[Result], keys: list[str]
) -> None:
    """Write ``regions.csv`` and the counterexamples."""
    from steadynet.files import disk_errors
    from steadynet.runs.tensors import save_tensors
    from steadynet.verification.region_table import RegionRow, write_regions

    run, rows = chosen.trained.run, []
    for index, label, result, key in zip(chosen.index.tolist(), labels.tolist(), results, keys, strict=True):
        name = ""
        if result.counterexample is not None:
            name = f"{run.counterexamples.name}/image-{index}-{asked.kind}-{key[-16:]}.safetensors"
            with disk_errors(run.path):
                run.counterexamples.mkdir(exist_ok=True)
            save_tensors(run.path / name, {"input": result.counterexample.cpu()}, {"index": index, "label": label})
        rows.append(
            RegionRow(
                asked=asked.kind,
                parameters=asked.parameters,
                claim=asked.claim,
                index=index,
                label=label,
                verdict=result.verdict,
                seconds=round(result.seconds, 6),
                timeout=verifier.timeout,
                verifier=verifier.name,
                settings=verifier.settings_line(),
                decided_by=str(result.decided_by),
                reason=result.reason,
                arithmetic=result.arithmetic,
                guarantee=result.guarantee,
                counterexample=name,
                data=chosen.data,
                key=key,
            )
        )
    write_regions(run.regions, rows)


def _show(arguments: argparse.Namespace, chosen: Selection, asked: Asked, results: list[Result]) -> None:
    from steadynet.cli.display.numbers import count_of, seconds
    from steadynet.cli.display.tables import table
    from steadynet.cli.display.terminal import console
    from steadynet.verification.results import WORDS

    counts = Counter(result.verdict for result in results)
    if arguments.json:
        summary = {word: counts[verdict] for verdict, word in WORDS.items()}
        sys.stdout.write(json.dumps(asdict(asked) | {"properties": len(results)} | summary, indent=2) + "\n")
        return
    rows = [[word, count_of(counts[verdict], len(results))] for verdict, word in WORDS.items() if counts[verdict]]
    spent = sum(result.seconds for result in results)
    table(f"{chosen.trained.run.path}: {len(results)} images; {asked.described()}", ["", "images"], rows)
    for reason, count in Counter(result.reason for result in results if result.reason).items():
        console.print(f"{count} × {reason}", soft_wrap=True, markup=False)
    console.print(f"{seconds(spent)} in all\nwritten: {chosen.trained.run.regions}", soft_wrap=True, markup=False)
