"""``steadynet demo``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from steadynet.cli.command import Command, count
from steadynet.cli.parsing import Parser


def _configure(parser: Parser) -> None:
    parser.add_argument("--out", default="demo", metavar="DIR", help="where the two runs are written [demo]")
    parser.add_argument("--epochs", type=count, default=30, metavar="N", help="epochs a network [30]")


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.demo_run import run_demo
    from steadynet.cli.display import TrainingDisplay, console, table

    with TrainingDisplay() as display:

        def observer(method: str) -> TrainingDisplay:
            console.print(f"{method}:")
            return display

        results = run_demo(Path(arguments.out), observer, display.follow, arguments.epochs)
    methods = list(results)
    table("The same network, trained twice", ["", *methods], _rows([results[method] for method in methods]))
    proved = {method: results[method]["verified"]["unsat"] for method in methods}
    total = results[methods[0]]["verified"]["properties"]
    path = shlex.quote(arguments.out)
    console.print(
        f"Of the same {total} images, {proved['nbc']} are proved robust with NBC and {proved['natural']} without it.\n"
        "Every unstable neuron doubles the work of a proof: the NBC network has few of them.\n"
        f"The runs are in {arguments.out}/; next: steadynet verify {path}/nbc --eps 0.1 0.2 --timeout 10",
        soft_wrap=True,
    )
    _write_page(Path(arguments.out), list(results))


def _write_page(out: Path, methods: list[str]) -> None:
    """The report of both networks, its path as the last line; without the optional extra, how to get it."""
    from steadynet.cli.display import console
    from steadynet.errors import UserError
    from steadynet.report.write import write_report

    try:
        page = write_report([out / method for method in methods], out / "report")
    except UserError as error:
        console.print(f"No page: {error}", soft_wrap=True, markup=False)
        return
    console.print(f"See both networks, with every image and counterexample: {page}", soft_wrap=True, markup=False)


def _rows(results: list[dict[str, Any]]) -> list[list[str]]:
    """What was measured, a line each, with a column a network."""
    from steadynet.cli.demo_run import PROVED_RADIUS, RADII, TIMEOUT
    from steadynet.cli.display import count_of, percent, seconds

    images = f"{results[0]['images']:,} test images"
    rows = [[f"accuracy ({images})", *(percent(result["accuracy"]) for result in results)]]
    for what, key in (("accuracy under attack (PGD-20)", "pgd_accuracy"), ("stable neurons (ibp)", "stable_share_ibp")):
        for place, radius in enumerate(RADII):
            rows.append([f"{what} at ε {radius}", *(percent(result["radii"][place][key]) for result in results)])
    verified = [result["verified"] for result in results]

    def counts(verdict: str) -> list[str]:
        return [count_of(found[verdict], found["properties"]) for found in verified]

    return [
        *rows,
        [f"proved robust at ε {PROVED_RADIUS}", *counts("unsat")],
        ["refuted, by a counterexample", *counts("sat")],
        [f"not decided in {TIMEOUT:g} s", *counts("timeout")],
        ["mean time of a verdict", *(seconds(found["time"]) for found in verified)],
    ]


COMMAND = Command("train two networks on embedded data, verify both and show them side by side", _configure, _run)
