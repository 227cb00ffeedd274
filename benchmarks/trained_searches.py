"""Networks trained with the search fast and with that of the paper, at equal epochs.

    python benchmarks/trained_searches.py [--epochs 4] [--seeds 0 1 2] [--out FOLDER]

M1 on MNIST by nbc at ε = 0.3: one-cycle 2e-3, ε rising over the first half. Each training is a process with one thread,
so its CPU minutes count it alone. Measured on test images: accuracy (all), accuracy under PGD-100 (the first 1,000) and
the share of stable ReLUs by CROWN (the first 100), at ε = 0.1, 0.2 and 0.3. What is stopped goes on when it is started
again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

from steadynet import InputRegion, crown_bounds, load_trained
from steadynet.data.cache import where
from steadynet.files import write_json
from steadynet.runs.evaluation import accuracy, pgd_accuracy
from timed_training import cpu_minutes, train

RADII = (0.1, 0.2, 0.3)
ATTACKED, BOUNDED = 1000, 100  # test images
MEASURED = ["accuracy", *(f"{name} {eps}" for name in ("PGD-100", "stable") for eps in RADII), "CPU minutes"]
Numbers = dict[str, float]


def settings_of(search: str, seed: int, epochs: int) -> dict[str, object]:
    """The settings of a training, as flags."""
    flags: dict[str, object] = {"data": "mnist", "model": "M1", "method": "nbc", "eps": 0.3, "search": search}
    return flags | {"epochs": epochs, "warmup": epochs / 2, "lr": 2e-3, "schedule": "one-cycle", "seed": seed}


def measure(run: Path) -> Numbers:
    """The numbers of a trained network, in percent."""
    trained = load_trained(run)
    network, test = trained.network.eval(), trained.data().test
    attacked, bounded = (test.subset(torch.arange(count)) for count in (ATTACKED, BOUNDED))
    torch.manual_seed(0)
    found = {"accuracy": 100 * accuracy(network, test)}
    for eps in RADII:
        found[f"PGD-100 {eps}"] = 100 * pgd_accuracy(network, attacked, eps, steps=100)
        with torch.no_grad():
            bounds = crown_bounds(network, InputRegion.around(bounded.pixels(), eps))
        found[f"stable {eps}"] = 100 * float(bounds.stable_share().mean())
    return found


def numbers_of(folder: Path, search: str, seed: int, epochs: int) -> Numbers:
    """The numbers of one network, which is trained and measured unless that is done."""
    run = folder / f"{search}-{epochs}-epochs-seed-{seed}"
    result = run.with_suffix(".json")
    if not result.is_file():
        if not (run / "weights.safetensors").is_file():
            train(run, settings_of(search, seed, epochs))
        found = measure(run) | {"CPU minutes": cpu_minutes(run)}
        write_json(result, found)
    found = json.loads(result.read_text())
    print(f"{search:6} seed {seed}: " + ", ".join(f"{name} {found[name]:.1f}" for name in MEASURED), flush=True)
    return found


def show(results: dict[str, list[Numbers]]) -> None:
    """Print a Markdown table of means and standard deviations."""
    print(f"\n| | {' | '.join(results)} |\n|---|{'---|' * len(results)}")
    for name in MEASURED:
        cells = [_mean_and_spread([numbers[name] for numbers in found]) for found in results.values()]
        print(f"| {name} | {' | '.join(cells)} |")


def _mean_and_spread(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=where() / "benchmarks" / "trained-searches")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[Numbers]] = {"fast": [], "paper": []}
    for seed in arguments.seeds:
        for search, found in results.items():
            found.append(numbers_of(arguments.out, search, seed, arguments.epochs))
    show(results)


if __name__ == "__main__":
    main()
