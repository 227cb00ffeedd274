"""Every certified method with its default settings: C1 on CIFAR-10 at ε = 2/255.

    python benchmarks/certified_cifar.py [METHOD ...] [--epochs 20] [--train-images N] [--seed 0] [--out FOLDER]

Each training is a process with one thread, so its CPU minutes count it alone. Measured on test images: accuracy (all),
accuracy under PGD-40 (the first 1,000), the share of stable ReLUs by CROWN (the first 100), and the share of the first
50 images that is proved in 5 CPU seconds each. What is stopped goes on when it is started again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from steadynet import InputRegion, Verdict, crown_bounds, load_trained, verify
from steadynet.data.cache import where
from steadynet.files import write_json
from steadynet.runs.evaluation import accuracy, pgd_accuracy
from timed_training import cpu_minutes, train

METHODS = ("ibp", "taps", "cc-ibp", "sabr", "mtl-ibp", "ibp-r", "exp-ibp", "staps", "crown-ibp")  # cheap ones first
EPS = 2 / 255
ATTACKED, BOUNDED, VERIFIED, TIMEOUT = 1000, 100, 50, 5.0  # test images, and seconds per proof
MEASURED = ("accuracy", "PGD-40", "stable (crown)", "proved", "CPU minutes")
Numbers = dict[str, float]


def measure(run: Path) -> Numbers:
    """The numbers of a trained network, in percent."""
    trained = load_trained(run)
    network, test = trained.network.eval(), trained.data().test
    attacked, bounded, verified = (test.subset(torch.arange(count)) for count in (ATTACKED, BOUNDED, VERIFIED))
    torch.manual_seed(0)
    with torch.no_grad():
        bounds = crown_bounds(network, InputRegion.around(bounded.pixels(), EPS))
    results = verify(network, verified.pixels(), verified.labels, EPS, timeout=TIMEOUT, clock="cpu")
    return {
        "accuracy": 100 * accuracy(network, test),
        "PGD-40": 100 * pgd_accuracy(network, attacked, EPS, steps=40),
        "stable (crown)": 100 * float(bounds.stable_share().mean()),
        "proved": 100 * sum(result.verdict is Verdict.UNSAT for result in results) / VERIFIED,
    }


def numbers_of(folder: Path, method: str, seed: int, epochs: int, images: int | None) -> Numbers:
    """The numbers of one network, which is trained and measured unless that is done."""
    run = folder / (f"{method}-{epochs}-epochs-" + (f"{images}-images-" if images else "") + f"seed-{seed}")
    result = run.with_suffix(".json")
    if not result.is_file():
        if not (run / "weights.safetensors").is_file():
            flags = {"data": "cifar10", "model": "C1", "method": method, "eps": "2/255", "epochs": epochs, "seed": seed}
            train(run, flags | ({"train-images": images} if images else {}))
        found = measure(run) | {"CPU minutes": cpu_minutes(run)}
        write_json(result, found)
    found = json.loads(result.read_text())
    print(f"{method:9}: " + ", ".join(f"{name} {found[name]:.1f}" for name in MEASURED), flush=True)
    return found


def main() -> None:
    """Train, measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", default=METHODS, help=f"(default: {' '.join(METHODS)})")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--train-images", type=int, metavar="N", help="train on the first N images only (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=where() / "benchmarks" / "certified-cifar")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    settings = (arguments.seed, arguments.epochs, arguments.train_images)
    results = {name: numbers_of(arguments.out, name, *settings) for name in arguments.methods}
    print(f"\n| | {' | '.join(MEASURED)} |\n|---|{'---|' * len(MEASURED)}")
    for name, found in results.items():
        print(f"| `{name}` | {' | '.join(f'{found[key]:.1f}' for key in MEASURED)} |")


if __name__ == "__main__":
    main()
