"""How long verification takes, against α,β-CROWN's recorded times on the same network and images. Run it alone.

    python benchmarks/verification.py [--threads 1] [--timeout 20] [--reference DIR] [--scaling] [--large]

The reference (``../shared/reference``, beside a checkout of this repository) holds a small NBC-trained M1, 40 images,
and α,β-CROWN's verdicts and seconds on one thread of this kind of machine, its process start not counted.
``--scaling`` verifies growing numbers of MNIST properties on a freshly trained M1; ``--large`` bounds one property of
M3 and C3 by CROWN. Peak memory is the process's own.
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from steadynet import data
from steadynet.attacks.region import InputRegion
from steadynet.bounds.crown import crown_bounds
from steadynet.networks import ARCHITECTURES
from steadynet.verification.properties import Properties
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound

REFERENCE = Path(__file__).parent.parent.parent / "shared" / "reference"


def load_reference(folder: Path) -> tuple[nn.Module, Tensor, Tensor]:
    """The reference network, with M1's layers and the file's weights, and its images and labels."""
    stored = onnx.load(folder / "m1_nbc.onnx").graph.initializer
    by_shape = {tuple(entry.dims): torch.tensor(numpy_helper.to_array(entry).copy()) for entry in stored}
    network = ARCHITECTURES["M1"].build()
    network.load_state_dict({name: by_shape[tuple(value.shape)] for name, value in network.state_dict().items()})
    images = np.load(folder / "m1_40_images.npz")
    return network.eval(), torch.tensor(images["X"]).float(), torch.tensor(images["y"]).long()


def peak_gib() -> float:
    """The largest memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def against_reference(folder: Path, timeout: float) -> None:
    """One line a radius: verdicts, total seconds, and the ratio."""
    network, images, labels = load_reference(folder)
    print(
        f"{'ε':>4} {'unsat':>6} {'sat':>4} {'time-out':>9} {'total s':>8} {'αβ-CROWN':>24} {'total s':>8} {'ratio':>6}"
    )
    for eps in ("0.1", "0.2", "0.3"):
        with (folder / f"alpha_beta_crown_eps{eps}.csv").open() as file:
            recorded = list(csv.DictReader(file))
        started = time.perf_counter()
        results = BranchAndBound(timeout=timeout)(Properties.around(network, images, labels, float(eps)))
        seconds = time.perf_counter() - started
        ours = Counter(result.verdict.value for result in results)
        theirs = Counter(row["verdict"] for row in recorded)
        total = sum(float(row["seconds"]) for row in recorded)
        for index, (result, row) in enumerate(zip(results, recorded, strict=True)):
            if {result.verdict.value, row["verdict"]} == {"sat", "unsat"}:
                print(f"CONTRADICTION at image {index}: ours {result.verdict.value}, recorded {row['verdict']}")
        said = f"{theirs['unsat']} unsat {theirs['sat']} sat {theirs['timeout']} t/o"
        print(
            f"{eps:>4} {ours['unsat']:6} {ours['sat']:4} {ours['timeout']:9} {seconds:8.2f} {said:>24} {total:8.1f} "
            f"{total / seconds:6.1f}",
            flush=True,
        )
    print(f"peak memory {peak_gib():.2f} GiB, time-out {timeout} s a property")


def scaling(run: str, counts: list[int], timeout: float) -> None:
    """Seconds for growing numbers of properties of a trained M1 at ε 0.1."""
    from steadynet import load_trained

    network = load_trained(run).network
    test = data.load("mnist").test
    for count in counts:
        index = test.first_of_each_class(count // 10)
        started = time.perf_counter()
        properties = Properties.around(network, test.pixels(index), test.labels[index], 0.1)
        verdicts = Counter(result.verdict.value for result in BranchAndBound(timeout=timeout)(properties))
        print(f"{count} properties: {time.perf_counter() - started:.1f} s {dict(verdicts)}, peak {peak_gib():.2f} GiB")


def large() -> None:
    """One CROWN property of M3 and C3 with fresh weights."""
    for model, eps in (("M3", 0.05), ("C3", 2 / 255)):
        torch.manual_seed(0)
        network = ARCHITECTURES[model].build()
        images = torch.rand(1, *ARCHITECTURES[model].image_shape)
        started = time.perf_counter()
        with torch.no_grad():
            bounds = crown_bounds(network, InputRegion.around(images, eps))
        seconds = time.perf_counter() - started
        share = float(bounds.stable_share()[0])
        print(f"{model}: CROWN in {seconds:.2f} s, stable {100 * share:.1f} %, peak {peak_gib():.2f} GiB", flush=True)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--scaling", metavar="RUN", help="a run directory of M1 on MNIST")
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.large:
        large()
    elif arguments.scaling:
        scaling(arguments.scaling, [250, 500, 1000], arguments.timeout)
    else:
        against_reference(arguments.reference, arguments.timeout)


if __name__ == "__main__":
    main()
