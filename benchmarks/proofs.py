"""What proofs cost: writing them against verifying, checking them against proving, and their sizes.

    python benchmarks/proofs.py NETWORK.onnx IMAGES.npz --eps 0.1 0.2 0.3     # X and y, as `verify --data` takes them
    python benchmarks/proofs.py RUN --eps 2/255 --images 20                   # a run, with its own test images

All seconds are CPU seconds of one thread, in one run. One property is verified, and its proof is checked, before the
clock starts: the first call of a process loads what the others find there.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

import steadycheck
from steadynet import load_trained
from steadynet.training.notation import parse_radius
from steadynet.verification.given import given_network
from steadynet.verification.proofs.folder import ProofFolder
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.verifiers import make_verifier

WITHOUT_SPLITS, PER_LEAF = 50_000, 5_000  # bytes that a proof may have


@dataclass
class Cost:
    """What the proofs of one radius cost, in seconds, and how large they are, in bytes."""

    verify: float
    proving: float  # of the proved properties alone
    write: float = 0.0
    check: float = 0.0
    proofs: int = 0
    missing: int = 0
    leaves: int = 0
    bytes: int = 0
    largest_without_splits: int = 0
    largest_per_leaf: float = 0.0

    def line(self, eps: float) -> str:
        """One row of the table."""
        return (
            f"| {eps:.4g} | {self.proofs} | {self.missing} | {self.verify:.1f} | {1 + self.write / self.verify:.2f} | "
            f"{self.proving:.2f} | {self.check:.2f} | {self.check / self.proving:.2f} | {self.leaves:,} | "
            f"{self.bytes:,} | {self.largest_without_splits:,} | {self.largest_per_leaf:,.0f} |"
        )


def measure(
    model: str, network: nn.Module, images: torch.Tensor, labels: torch.Tensor, eps: float, timeout: float
) -> Cost:
    """Verify images at one radius, write all proofs and check them."""
    properties = Properties.around(network, images, labels, eps)
    verifier = replace(make_verifier("branch_and_bound", {"timeout": timeout, "clock": "cpu"}), hints=True)
    verifier(properties[:1])
    started = time.process_time()
    results = verifier(properties)
    proved = [index for index, result in enumerate(results) if result.verdict is Verdict.UNSAT]
    cost = Cost(time.process_time() - started, sum(results[index].seconds for index in proved))
    with TemporaryDirectory() as path, torch.no_grad():
        folder, classes = ProofFolder(Path(path)), int(network(images[:1]).shape[1])
        started = time.process_time()
        folder.take(model, network, tuple(images.shape[1:]))
        for index in proved:
            folder.write_robustness(str(index), properties, index, classes, results[index])
        cost.write = time.process_time() - started
        cost.missing = len(folder.missing)
        if folder.written:
            _check(folder, folder.written[0], steadycheck.read_network(folder.model.read_bytes()))
        started = time.process_time()
        known = steadycheck.read_network(folder.model.read_bytes())
        for name in folder.written:
            found = _check(folder, name, known)
            _count(cost, results[int(name)], found.leaves, folder.proof(name).stat().st_size, classes - 1)
        cost.check = time.process_time() - started
    return cost


def _check(folder: ProofFolder, name: str, network: steadycheck.Network) -> steadycheck.Proved:
    proof = folder.proof(name)
    return steadycheck.check(network, proof.with_suffix(".vnnlib").read_bytes(), proof.read_bytes())


def _count(cost: Cost, result: Result, leaves: int, size: int, violations: int) -> None:
    cost.proofs, cost.leaves, cost.bytes = cost.proofs + 1, cost.leaves + leaves, cost.bytes + size
    if leaves <= violations:
        cost.largest_without_splits = max(cost.largest_without_splits, size)
    else:
        cost.largest_per_leaf = max(cost.largest_per_leaf, size / leaves)


def _inputs(given: argparse.Namespace) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    if given.data:
        arrays = np.load(given.data)
        images, labels = torch.tensor(arrays["X"]), torch.tensor(arrays["y"])
        return given_network(given.network, tuple(images.shape[1:])), images[: given.images], labels[: given.images]
    trained = load_trained(given.network)
    test = trained.data().test
    chosen = test.first_of_each_class(-(-given.images // 10))[: given.images]
    return trained.network, test.pixels(chosen), test.labels[chosen]


def main() -> None:
    """Print one row per radius."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("data", nargs="?")
    parser.add_argument("--eps", nargs="+", type=parse_radius, default=[0.1])
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--timeout", type=float, default=10.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    network, images, labels = _inputs(given)
    print("| ε | proofs | missing | verify s | verify with proofs, × | proving s | checking s | × | leaves | bytes "
          "| largest without splits | largest per leaf |")  # fmt: skip
    print("|" + "---|" * 12)
    for eps in given.eps:
        print(measure(given.network, network, images, labels, eps, given.timeout).line(eps), flush=True)


if __name__ == "__main__":
    main()
