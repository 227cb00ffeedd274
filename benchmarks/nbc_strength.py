"""Which β and which L1 term let NBC prove most? A cell of a grid, trained with others, measured on validation images.

    python benchmarks/nbc_strength.py [--grid rq1-mnist] [--model M1] [--method nbc] [--beta 1 3] [--l1 0 2e-5]
        [--beside rs] [--published results] [--out FOLDER]

Each network is trained with seed 0 as the grid says, but for β and the L1 term. Methods named by --beside are trained
as they are. A network that is published with the same settings is not trained again. Validation images are measured,
which no training has seen and which are not test images: accuracy (all of them), and at each radius of the grid the
share of 50 (5 of each class) that is proved in 5 CPU seconds each, and the seconds that these properties took. What is
stopped goes on when it is started again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from steadynet import Verdict, load_trained, verify
from steadynet import data as data_sets
from steadynet.data.cache import where
from steadynet.experiments.cells import Cell, cells_of
from steadynet.experiments.grid import read_grid
from steadynet.files import write_json
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy
from steadynet.training.loop import resume, train
from steadynet.training.settings import resolve

PER_CLASS, TIMEOUT = 5, 5.0  # validation images of each class; CPU seconds for each
Values = dict[str, Any]


def changed(cell: Cell, beta: float, l1: float) -> Values:
    """The settings of a cell with another β and L1 term."""
    methods = {name: dict(table) for name, table in cell.settings["methods"].items()}
    methods["nbc"] = methods.get("nbc", {}) | {"beta": beta}
    return {**cell.settings, "methods": methods} | ({"l1_weight": l1} if l1 else {})


def trained(name: str, values: Values, cell: Cell, published: Path, folder: Path) -> Path:
    """The run of a network: a published one with these settings, or a new one."""
    settings = replace(resolve(values), threads=1)
    for run in published.glob(f"*/runs/{cell.key}"):
        if dict(cell.settings) == values and (run / "weights.safetensors").is_file():
            return run
    run = RunDirectory(folder / name)
    if not run.weights.is_file():
        run = resume(run.path) if run.checkpoint.is_file() else train(settings, run.path, overwrite=True)
    return run.path


def measure(run: Path, cell: Cell) -> Values:
    """What a network does on validation images, in percent and CPU seconds."""
    settings, network = resolve(cell.settings), load_trained(run).network
    data = data_sets.load(settings.data)
    _, validation = data.split(settings.validation, settings.seed)
    chosen = validation.subset(validation.first_of_each_class(PER_CLASS, data.class_count))
    found: Values = {"accuracy": 100 * accuracy(network, validation)}
    for eps in cell.verification.eps:
        results = verify(network, chosen.pixels(), chosen.labels, eps, timeout=TIMEOUT, clock="cpu")
        proved = sum(result.verdict is Verdict.UNSAT for result in results)
        found[f"proved at {eps:.4g}"] = 100 * proved / len(results)
        found[f"seconds at {eps:.4g}"] = sum(result.seconds for result in results)
    return found


def networks(given: argparse.Namespace) -> Iterator[tuple[str, Values, Cell]]:
    """Names, settings and cells of all networks."""
    only = {"model": [given.model], "method": [given.method, *given.beside]}
    cells = {cell.variant.label: cell for cell in cells_of(read_grid(given.grid, "laptop"), [0], only)}
    for method in given.beside:
        yield method, dict(cells[method].settings), cells[method]
    for beta in given.beta:
        for l1 in given.l1:
            yield f"{given.method}-beta-{beta:g}-l1-{l1:g}", changed(cells[given.method], beta, l1), cells[given.method]


def main() -> None:
    """Print one line per network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", default="rq1-mnist")
    parser.add_argument("--model", default="M1")
    parser.add_argument("--method", default="nbc")
    parser.add_argument("--beta", nargs="+", type=float, default=[1.0, 3.0])
    parser.add_argument("--l1", nargs="+", type=float, default=[0.0, 2e-5])
    parser.add_argument("--beside", nargs="*", default=["rs"])
    parser.add_argument("--published", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=where() / "benchmarks" / "nbc-strength")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, values, cell in networks(given):
        record = given.out / f"{given.grid}-{given.model}-{name}.json"
        if not record.is_file():
            run = trained(record.stem, values, cell, given.published, given.out)
            write_json(record, measure(run, cell))
        found = json.loads(record.read_text())
        print(f"{name:28}" + ", ".join(f"{key} {value:.1f}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
