"""Which settings prove most? Cells of a grid, trained with other settings, measured on validation images.

    python benchmarks/pilots.py [--grid rq1-mnist] [--model M1] [--methods rs nbc] [--beta 1 3] [--l1 0 2e-5]
        [--lr 5e-4 2e-3] [--epochs 4] [--warmup 2] [--train-images 10000] [--radii 0.1 0.3] [--per-class 5]
        [--published results] [--out FOLDER]

Each network is trained with seed 0 as the grid says at the scale laptop, but for what a flag changes: one network per
method and combination of the values given. β changes methods with NBC only, and the L1 term those without rs. A network
that is published with the same settings is not trained again. Validation images are measured, which no training has
seen and which are not test images: accuracy (all of them), and at each radius the share of 50 (--per-class of each
class) that is proved in --timeout CPU seconds each, the share that a counterexample refutes, and the seconds that
these properties took. What is stopped goes on when it is started again.
"""

from __future__ import annotations

import argparse
import itertools
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
from steadynet.training.notation import parse_phases, parse_radius, written_radius
from steadynet.training.settings import resolve

Values = dict[str, Any]
PLAIN = ("lr", "warmup", "train_images")  # flags that are settings of a training


def changed(cell: Cell, change: Values) -> Values:
    """The settings of a cell with some of them changed."""
    method = cell.variant.label.split("+")
    values = {**cell.settings} | {name: value for name, value in change.items() if name in PLAIN}
    if "epochs" in change:
        before = parse_phases(cell.settings["phases"])
        share = change["epochs"] / sum(phase.epochs for phase in before)
        values["phases"] = " ".join(f"{phase.method}:{max(1, round(phase.epochs * share))}" for phase in before)
    if "beta" in change and "nbc" in method:
        methods = {name: dict(table) for name, table in cell.settings["methods"].items()}
        values["methods"] = methods | {"nbc": methods.get("nbc", {}) | {"beta": change["beta"]}}
    if change.get("l1") and "rs" not in method:
        values["l1_weight"] = change["l1"]
    return values


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


def measure(run: Path, cell: Cell, given: argparse.Namespace) -> Values:
    """What a network does on validation images, in percent and CPU seconds."""
    settings, network = resolve(cell.settings), load_trained(run).network
    data = data_sets.load(settings.data)
    _, validation = data.split(settings.validation, settings.seed)
    chosen = validation.subset(validation.first_of_each_class(given.per_class, data.class_count))
    found: Values = {"accuracy": 100 * accuracy(network, validation)}
    for eps in given.radii or cell.verification.eps:
        results = verify(network, chosen.pixels(), chosen.labels, eps, timeout=given.timeout, clock="cpu")
        for shown, verdict in (("proved", Verdict.UNSAT), ("refuted", Verdict.SAT)):
            found[f"{shown} at {written_radius(eps)}"] = (
                100 * sum(result.verdict is verdict for result in results) / len(results)
            )
        found[f"seconds at {written_radius(eps)}"] = sum(result.seconds for result in results)
    return found


def networks(given: argparse.Namespace) -> Iterator[tuple[str, Values, Cell]]:
    """Names, settings and cells of all networks."""
    only = {"model": [given.model], "method": given.methods}
    cells = {cell.variant.label: cell for cell in cells_of(read_grid(given.grid, "laptop"), [0], only)}
    flags = [name for name in ("beta", "l1", "lr", "epochs", "warmup", "train_images") if getattr(given, name)]
    for method in given.methods:
        seen: list[Values] = []
        for values in itertools.product(*(getattr(given, name) for name in flags)):
            settings = changed(cells[method], dict(zip(flags, values, strict=True)))
            if settings not in seen:  # what a flag does not change is trained once
                seen.append(settings)
                shown = "".join(f"-{name}-{value:g}" for name, value in zip(flags, values, strict=True))
                yield f"{method}{shown}", settings, cells[method]


def main() -> None:
    """Print one line per network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", default="rq1-mnist")
    parser.add_argument("--model", default="M1")
    parser.add_argument("--methods", nargs="+", default=["nbc"])
    for name in ("--beta", "--l1", "--lr", "--warmup"):
        parser.add_argument(name, nargs="+", type=float, default=[])
    parser.add_argument("--radii", nargs="+", type=parse_radius, default=[])
    for name in ("--epochs", "--train-images"):
        parser.add_argument(name, nargs="+", type=int, default=[])
    parser.add_argument("--per-class", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=5.0)
    parser.add_argument("--published", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=where() / "benchmarks" / "pilots")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, values, cell in networks(given):
        record = given.out / f"{given.grid}-{given.model}-{name}.json"
        if not record.is_file():
            run = trained(record.stem, values, cell, given.published, given.out)
            write_json(record, measure(run, cell, given))
        found = json.loads(record.read_text())
        print(f"{name:44} " + ", ".join(f"{key} {value:.1f}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
