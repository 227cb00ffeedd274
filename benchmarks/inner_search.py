"""How strong the inner attack of a training is for the gradients that it spends.

    python benchmarks/inner_search.py [--images 256] [--figure FILE.png] [MODEL …]

A search is stronger if it finds a point with smaller consistency (NBC, Algorithm 2) or larger cross-entropy (madry, rs,
sabr, mtl-ibp). Its strength is how much the value changes from the image itself to the point that it finds, divided by
that of the paper's ten steps of ε/10, on validation images. The networks are untrained, half-trained and trained by nbc
(``trained_networks.py``).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet import data as data_sets
from steadynet.attacks.pgd import descend
from steadynet.attacks.region import InputRegion
from steadynet.attacks.schedule import StepSchedule
from steadynet.networks.preactivations import Activations, activations
from steadynet.objectives.consistency import consistency
from steadynet.objectives.nbc import NBC
from trained_networks import SETTINGS, STAGES, network_at

OBJECTIVES = ("NBC", "cross-entropy")
Value = Callable[[Tensor], Tensor]  # from points to one number per point; smaller is stronger


@dataclass(frozen=True)
class Search:
    """One way to search. ``start`` is a random point of the region, a point close to the image, or an earlier x'."""

    name: str
    schedule: StepSchedule  # for radius 1
    start: str = "random"

    @property
    def gradients(self) -> int:
        """How many gradients it computes."""
        return len(self.schedule.lengths)


def shares(*lengths: float, momentum: float = 0.0) -> StepSchedule:
    """Steps as shares of the radius."""
    return StepSchedule(lengths, momentum)


PAPER = Search("paper: 10 × 0.1", NBC().schedule(1.0))
FAST = Search("fast", NBC(search="fast").schedule(1.0))
EQUAL = [Search(f"{count} × 0.1", StepSchedule.equal(count, 0.1)) for count in (3, 5, 20, 40)]
DECAYING = [
    Search("1, 0.5", shares(1, 0.5)),
    Search("2, 1", shares(2, 1)),
    Search("1, 0.5, 0.25", shares(1, 0.5, 0.25)),
    Search("2, 1, 0.5", shares(2, 1, 0.5)),
    Search("2, 1, 1", shares(2, 1, 1)),
    Search("1, 0.6, 0.3, 0.15", shares(1, 0.6, 0.3, 0.15)),
    Search("2, 1, 0.5, 0.25", shares(2, 1, 0.5, 0.25)),
]
VARIANTS = [
    Search("2, 1, 0.5; momentum 0.25", shares(2, 1, 0.5, momentum=0.25)),
    Search("2, 1, 0.5; momentum 1", shares(2, 1, 0.5, momentum=1.0)),
    Search("2, 1, 0.5; start near x", shares(2, 1, 0.5), "near"),
    Search("1, 0.5; start at earlier x'", shares(1, 0.5), "earlier"),
    Search("2, 1, 0.5; start at earlier x'", shares(2, 1, 0.5), "earlier"),
]
SEARCHES = [PAPER, FAST, *EQUAL, *DECAYING, *VARIANTS]


def value_of(objective: str, network: nn.Module, images: Tensor, labels: Tensor) -> Value:
    """What a search makes small: NBC(f, x, x'), or minus the cross-entropy."""
    if objective == "cross-entropy":
        return lambda points: -F.cross_entropy(network(points), labels, reduction="none")
    clean = activations(network, images)
    fixed = Activations(clean.logits.detach(), [layer.detach() for layer in clean.preactivations])
    return lambda points: consistency(fixed, activations(network, points), "rank-power")


def find(search: Search, value: Value, images: Tensor, eps: float, earlier: Tensor | None) -> Tensor:
    """The points that a search finds; ``earlier`` are those that it may start from."""
    region = InputRegion.around(images, eps)
    torch.manual_seed(1)
    start = region.sample()
    if search.start == "near":
        start = region.project(images + 0.1 * eps * torch.randn_like(images))
    elif search.start == "earlier" and earlier is not None:
        start = earlier
    lengths = [share * eps for share in search.schedule.lengths]
    return descend(value, region, start, steps=len(lengths), step_size=lengths, momentum=search.schedule.momentum)


def strengths(model: str, objective: str, count: int) -> dict[str, dict[str, float]]:
    """The strength of every search at every stage of a training, as a multiple of the paper's."""
    setting, earlier = SETTINGS[model], None
    images = data_sets.load(setting.data).split(0.1, 0)[1].subset(torch.arange(count))
    pixels, found = images.pixels(), {}
    for stage in STAGES:
        network = network_at(stage, model)
        value = value_of(objective, network, pixels, images.labels)
        with torch.no_grad():
            at_images = value(pixels)
        fall, last = {}, None
        for search in SEARCHES:
            if search.start == "earlier" and earlier is None:
                continue
            points = find(search, value, pixels, setting.eps, earlier)
            with torch.no_grad():
                fall[search.name] = float((at_images - value(points)).mean())
            last = points if search is FAST else last
        earlier = last
        found[stage] = {name: fell / fall[PAPER.name] for name, fell in fall.items()}
    return found


def draw(results: dict[tuple[str, str], dict[str, dict[str, float]]], path: Path) -> None:
    """Draw strength against gradients: one row per network and objective, one column per stage."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        len(results), len(STAGES), figsize=(10.5, 2.6 * len(results)), squeeze=False, sharey="row"
    )
    for row, ((model, objective), found) in zip(axes, results.items(), strict=True):
        for axis, stage in zip(row, STAGES, strict=True):
            _draw_one(axis, found[stage])
            axis.set_title(f"{model}, {objective}: {stage}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("gradients spent per image")
    for row in axes:
        row[0].set_ylabel("strength, paper = 1")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, frameon=False)
    figure.tight_layout(rect=(0, 0.35 / (2.6 * len(results)), 1, 1))
    figure.savefig(path, dpi=110)


def _draw_one(axis, strength: dict[str, float]) -> None:
    equal = sorted([PAPER, *EQUAL], key=lambda search: search.gradients)
    axis.axhline(1, color="#e5e7eb", zorder=0)
    axis.plot(
        [search.gradients for search in equal],
        [strength[search.name] for search in equal],
        "o-", color="#6b7280", markersize=4, label="equal steps of ε/10",
    )  # fmt: skip
    for searches, colour, label in ((DECAYING, "#2563eb", "decaying steps"), (VARIANTS, "#15803d", "other variants")):
        shown = [search for search in searches if search.name in strength]
        places = [search.gradients for search in shown], [strength[search.name] for search in shown]
        axis.plot(*places, "o", color=colour, markersize=4, label=label)
    axis.plot([10], [1], "s", color="#1f2937", markersize=7, label="paper")
    axis.plot([FAST.gradients], [strength[FAST.name]], "*", color="#b91c1c", markersize=13, label="fast")
    axis.set_xscale("log")
    axis.set_xticks([2, 3, 5, 10, 20, 40], ["2", "3", "5", "10", "20", "40"])
    axis.minorticks_off()


def main() -> None:
    """Print one table per network and objective."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    for model in arguments.models or list(SETTINGS):
        for objective in OBJECTIVES:
            found = results[model, objective] = strengths(model, objective, arguments.images)
            print(
                f"\n{model}, {objective}, ε = {SETTINGS[model].eps:.3g}, {arguments.images} images: strength, paper = 1"
            )
            print(f"{'search, in shares of ε':32} {'gradients':>9}" + "".join(f"{stage:>14}" for stage in STAGES))
            for search in sorted(SEARCHES, key=lambda search: search.gradients):
                cells = [found[stage].get(search.name) for stage in STAGES]
                texts = "".join(f"{'' if cell is None else f'{cell:.3f}':>14}" for cell in cells)
                print(f"{search.name:32} {search.gradients:9}{texts}", flush=True)
    if arguments.figure:
        draw(results, arguments.figure)


if __name__ == "__main__":
    main()
