"""smaller-network.svg: how large the condensed network is, and how long a bound takes there, by unstable ReLUs.

python docs/figures/smaller_network.py FOLDER, with the reference of ``benchmarks/verification.py``: a minute;
smaller-network.json keeps the numbers that are drawn. Without FOLDER, it draws them again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from steadynet.attacks.region import InputRegion
from steadynet.bounds.condensed import condense
from steadynet.bounds.condensed_bounds import Columns, SplitColumns, lower, whole_query
from steadynet.bounds.crown import MEMORY, propagate
from steadynet.bounds.layer_bounds import stable_share
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.memory import keep_freed_memory
from svg import BLUE, GREY, HERE, LIGHT, ORANGE, Drawing, Point

KEPT = HERE / "smaller-network.json"
RADII = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
IMAGES, COLUMNS, REPEATS = 5, 64, 7
PANELS = {"entries": ("numbers in its matrices (thousands)", 200), "ms": ("CPU ms for 64 bounds", 10)}


def fastest(call: Callable[[], object]) -> float:
    """CPU milliseconds of the fastest of some calls."""
    found = []
    for _ in range(REPEATS):
        started = time.process_time()
        call()
        found.append(1000 * (time.process_time() - started))
    return min(found)


def measured(folder: Path) -> list[dict[str, float]]:
    """One entry per radius: means over the images."""
    network, stored = read_onnx(folder / "m1_nbc.onnx"), np.load(folder / "m1_40_images.npz")
    images, labels = torch.from_numpy(stored["X"]).float()[:IMAGES], torch.from_numpy(stored["y"]).long()
    graph, identity = graph_of(network, tuple(images.shape[1:])), torch.eye(10)
    result = []
    for eps in RADII:
        rows = []
        for image, label in zip(images, labels.tolist(), strict=False):
            region = InputRegion.around(image[None], eps)
            whole, _ = propagate(graph, Interval(region.lower, region.upper))
            margins = identity[label] - torch.cat([identity[:label], identity[label + 1 :]])
            small = condense(whole, margins, MEMORY)
            none = torch.zeros(0, dtype=torch.long)
            splits = SplitColumns(none, none, torch.zeros(0), torch.zeros(0))
            which, slopes = torch.arange(COLUMNS) % 9, small.lines.lower_slope.repeat(1, COLUMNS)
            batch = Columns.of(small, which, slopes, splits)
            relaxed, query = whole_query(small, batch, whole.relaxed(), margins)
            seconds = fastest(lambda: lower(small, batch)), fastest(lambda: relaxed.lower(query))  # noqa: B023
            rows.append([1 - float(stable_share(whole.relus())), small.entries / 1000, *seconds])
        means = np.mean(rows, axis=0).tolist()
        names = ("unstable", "entries", "ms", "ms_whole")
        result.append({"eps": eps, **{name: round(mean, 4) for name, mean in zip(names, means, strict=True)}})
        print(result[-1], flush=True)
    return result


def draw(numbers: list[dict[str, float]]) -> None:
    """Two panels: the size of the condensed network, and the time of a bound on it and on the whole network."""
    drawing = Drawing(
        900, 380, "Size of the smaller network, and time of a bound on it, by the share of unstable ReLUs"
    )
    for panel, (name, (title, most)) in enumerate(PANELS.items()):
        left, top, width, height = 70.0 + 450 * panel, 50.0, 350.0, 240.0

        def place(share: float, value: float) -> Point:
            return left + width * share / 0.3, top + height * (1 - value / most)  # noqa: B023

        drawing.text((left, top - 20), title)
        for step in range(6):
            _, y = place(0, most * step / 5)
            drawing.line([(left, y), (left + width, y)], LIGHT, 1)
            drawing.text((left - 8, y + 6), f"{most * step / 5:g}", anchor="end", colour=GREY)
        for share in (0.0, 0.1, 0.2, 0.3):
            x, _ = place(share, 0)
            drawing.text((x, top + height + 24), f"{100 * share:.0f} %", anchor="middle", colour=GREY)
        drawing.text((left + width / 2, top + height + 52), "unstable ReLUs", anchor="middle")
        for key, colour, words in (("ms_whole", ORANGE, "whole network"), (name, BLUE, "smaller network")):
            if key == name or name == "ms":
                points = [place(entry["unstable"], entry[key]) for entry in numbers]
                drawing.line(points, colour, 2.5)
                drawing.text((points[0][0] + 10, points[0][1] - 12), words, colour=colour)
    drawing.save("smaller-network.svg")


def main() -> None:
    """Measure if a folder is given, and draw."""
    if len(sys.argv) > 1:
        keep_freed_memory()
        torch.set_num_threads(1)
        with torch.no_grad():
            KEPT.write_text(json.dumps(measured(Path(sys.argv[1])), indent=1) + "\n")
    draw(json.loads(KEPT.read_text()))


if __name__ == "__main__":
    main()
