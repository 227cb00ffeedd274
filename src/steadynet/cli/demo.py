"""``steadynet demo``."""

from __future__ import annotations

import argparse
from pathlib import Path

from steadynet.cli.command import Command, count
from steadynet.flags import Parser


def _configure(parser: Parser) -> None:
    parser.add_argument("--out", default="demo", metavar="DIR", help="where the two runs are written [demo]")
    parser.add_argument("--epochs", type=count, default=20, metavar="N", help="epochs a network [20]")


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.demo import RADII, run_demo
    from steadynet.display import TrainingDisplay, console, percent, table

    with TrainingDisplay() as display:

        def observer(method: str) -> TrainingDisplay:
            console.print(f"{method}:")
            return display

        results = run_demo(Path(arguments.out), observer, arguments.epochs)
    methods = list(results)
    rows = [["accuracy", *(percent(results[method]["accuracy"]) for method in methods)]]
    for index, radius in enumerate(RADII):
        found = [results[method]["radii"][index] for method in methods]
        rows.append([f"PGD-20 accuracy at ε {radius}", *(percent(row["pgd_accuracy"]) for row in found)])
        rows.append([f"stable neurons (ibp) at ε {radius}", *(percent(row["stable_share_ibp"]) for row in found)])
    table("The same network, trained twice (1,000 test images)", ["", *methods], rows)
    console.print(
        "Every unstable neuron doubles the work of a proof: the NBC network has few of them.\n"
        f"The runs are in {arguments.out}/; next: steadynet train --help",
        soft_wrap=True,
    )


COMMAND = Command("train two networks on embedded data and show them side by side", _configure, _run)
