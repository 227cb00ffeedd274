"""stable-share.svg, proved-share.svg and counterexample.png, from the two networks of ``steadynet demo``.

steadynet demo && python docs/figures/digits.py demo: some minutes; figures.json keeps the numbers that are drawn.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from steadynet import InputRegion, load_trained, verify
from steadynet.bounds import crown_bounds, interval_bounds
from steadynet.verification.properties import DecidedBy
from svg import BLUE, GREEN, GREY, HERE, LIGHT, ORANGE, RED, Drawing, Point

METHODS, COLOURS = ("natural", "nbc"), {"natural": ORANGE, "nbc": BLUE}
RADII = [round(0.02 * step, 2) for step in range(1, 16)]
BOUNDS = {"ibp": interval_bounds, "crown": crown_bounds}
IMAGES = 2  # of each class
PROVED_RADII, TIMEOUT = [0.02, 0.05, 0.1, 0.2, 0.3], 5.0
SHOWN_RADIUS = 0.1  # of the counterexample


def measured(runs: Path, method: str) -> dict[str, Any]:
    """Stable shares and verdicts of one network, one number per radius."""
    trained = load_trained(runs / method)
    test = trained.data().test
    index = test.first_of_each_class(IMAGES)
    images, labels = test.pixels(index), test.labels[index]
    stable = {
        name: [float(bound(trained.network, InputRegion.around(images, eps)).stable_share().mean()) for eps in RADII]
        for name, bound in BOUNDS.items()
    }
    verdicts = []
    for eps in PROVED_RADII:
        torch.manual_seed(0)
        results = verify(trained.network, images, labels, eps, timeout=TIMEOUT)
        found = [result.verdict.value for result in results]
        verdicts.append({verdict: found.count(verdict) for verdict in ("unsat", "sat", "timeout")})
    return {"stable": stable, "verdicts": verdicts, "images": len(images)}


def draw_stable_shares(numbers: dict[str, Any]) -> None:
    """Two lines a network: what intervals show, and what CROWN shows."""
    drawing = Drawing(760, 420, "Share of stable ReLUs against the radius, for two networks")
    left, top, width, height = 70.0, 20.0, 520.0, 330.0

    def place(eps: float, share: float) -> Point:
        return left + width * eps / 0.3, top + height * (1 - share)

    for percent in range(0, 101, 25):
        _, y = place(0, percent / 100)
        drawing.line([(left, y), (left + width, y)], LIGHT, 1)
        drawing.text((left - 8, y + 6), f"{percent} %", anchor="end", colour=GREY)
    for eps in (0.0, 0.1, 0.2, 0.3):
        drawing.text((place(eps, 0)[0], top + height + 24), f"{eps:g}", anchor="middle", colour=GREY)
    drawing.text((left + width / 2, top + height + 52), "radius ε", anchor="middle")
    for method in METHODS:
        for bound, shares in numbers[method]["stable"].items():
            points = [place(eps, share) for eps, share in zip([0, *RADII], [1, *shares], strict=True)]
            drawing.line(points, COLOURS[method], 2.5, dashed=bound == "ibp")
            beside = points[-1][1] + (14 if bound == "ibp" else -2)  # two labels apart where the lines meet
            drawing.text((points[-1][0] + 10, beside), f"{method}, {bound}", colour=COLOURS[method])
    drawing.save("stable-share.svg")


def draw_verdicts(numbers: dict[str, Any]) -> None:
    """A bar a network and radius: proved, not decided, refuted."""
    drawing = Drawing(760, 400, "Verdicts on the same images, for two networks at five radii")
    colours = {"unsat": GREEN, "timeout": LIGHT, "sat": RED}
    words = {"unsat": "proved", "timeout": f"not decided in {TIMEOUT:g} s", "sat": "refuted"}
    top, height, bar, gap = 66.0, 250.0, 56.0, 145.0
    for place, (verdict, colour) in enumerate(colours.items()):
        drawing.box((25 + 215 * place, 12), (18, 18), fill=colour)
        drawing.text((51 + 215 * place, 27), words[verdict])
    for column, eps in enumerate(PROVED_RADII):
        for side, method in enumerate(METHODS):
            x, y = 25 + gap * column + (bar + 6) * side, top
            counts, total = numbers[method]["verdicts"][column], numbers[method]["images"]
            for verdict in reversed(colours):
                part = height * counts[verdict] / total
                drawing.box((x, y), (bar, part), fill=colours[verdict])
                y += part
            drawing.text((x + bar / 2, top - 8), f"{counts['unsat']}/{total}", anchor="middle", colour=GREEN)
            drawing.text((x + bar / 2, top + height + 24), method, anchor="middle", colour=COLOURS[method])
        drawing.text((25 + gap * column + bar + 3, top + height + 54), f"ε = {eps:g}", anchor="middle")
    drawing.save("proved-share.svg")


def draw_counterexample(runs: Path) -> None:
    """The first image that the natural network keeps without change and loses within ε: image, counterexample."""
    trained = load_trained(runs / "natural")
    test = trained.data().test
    index = test.first_of_each_class(1)
    images, labels = test.pixels(index), test.labels[index]
    torch.manual_seed(0)
    results = verify(trained.network, images, labels, SHOWN_RADIUS, timeout=TIMEOUT)
    for image, label, result in zip(images, labels.tolist(), results, strict=True):
        if result.counterexample is not None and result.decided_by != DecidedBy.MISCLASSIFIED:
            answer = int(trained.network(result.counterexample[None]).argmax())
            pair = torch.cat([image[0], torch.ones(28, 2), result.counterexample[0]], 1)
            pixels = np.kron((255 * pair).round().byte().numpy(), np.ones((6, 6), dtype=np.uint8))
            Image.fromarray(pixels).save(HERE / "counterexample.png", optimize=True)
            print(f"counterexample: label {label}, answer {answer}")
            return


def main() -> None:
    """Measure what is not measured yet, and draw."""
    kept = HERE / "figures.json"
    if len(sys.argv) > 1:
        runs = Path(sys.argv[1])
        draw_counterexample(runs)
        kept.write_text(json.dumps({method: measured(runs, method) for method in METHODS}, indent=1) + "\n")
    numbers = json.loads(kept.read_text())
    draw_stable_shares(numbers)
    draw_verdicts(numbers)


if __name__ == "__main__":
    main()
