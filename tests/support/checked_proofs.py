"""Proofs of properties whose truth is known, and of real instances, checked by ``steadycheck``.

``python tests/support/checked_proofs.py [--seeds 1] [--instances FOLDER]`` takes every kind of network of every family
of the self-test, and every instance of a folder with an ``instances.csv``; the test suite takes a few of them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

import steadycheck
from steadynet.verification.proofs.of_instances import InstanceProofs
from steadynet.verification.properties import Verdict
from steadynet.verification.self_test.families import FAMILIES
from steadynet.verification.vnncomp import Instance, decide_with_hints

SHARED = Path(__file__).parents[3] / "shared" / "vnncomp"
UNKNOWN = ("is not known", "a constant, or nothing")  # networks that steadycheck does not read
S_SHAPED = "s-shaped"  # sigmoids, which proofs do not speak of
TIMEOUT = 10.0
PER_NETWORK = 2  # properties


def proof_of(instance: Instance, folder: Path) -> int | str | None:
    """The number of leaves of a checked proof; why there is none; None if the instance is not proved."""
    result = decide_with_hints(instance, "branch_and_bound", {})
    if result.verdict is not Verdict.UNSAT:
        return None
    proofs = InstanceProofs(folder)
    proofs.write(instance, result)
    for reason in proofs.missing.values():
        return reason
    (written,) = folder.rglob("*.proof")
    network = steadycheck.read_network((written.parent / "model.onnx").read_bytes())
    return steadycheck.check(network, written.with_suffix(".vnnlib").read_bytes(), written.read_bytes()).leaves


def of_family(family: str, folder: Path, every: int = 1, seed: int = 0) -> Iterator[tuple[str, int | str | None]]:
    """What became of the properties of a family of the self-test, of every third kind, say, of network."""
    known = FAMILIES[family]
    for kind in list(known.kinds)[::every]:
        made = known.make(kind, seed)
        for index, answer in enumerate(made.decide("branch_and_bound", {"timeout": TIMEOUT})[:PER_NETWORK]):
            if answer.verdict is Verdict.UNSAT:
                name = f"{family} {kind} {index} seed {seed}"
                place = Path(tempfile.mkdtemp(dir=folder))
                made.save(index, place)
                instance = Instance(place / "network.onnx", place / "property.vnnlib", TIMEOUT)
                yield name, proof_of(instance, place / "proofs")


def of_instances(
    instances: Path, folder: Path, only: tuple[str, ...] = ("",)
) -> Iterator[tuple[str, int | str | None]]:
    """What became of the instances of a folder whose properties have one of some words in their names."""
    for line in (instances / "instances.csv").read_text().split():
        network, property_file, seconds = line.split(",")
        if any(part in property_file for part in only):
            instance = Instance(instances / network, instances / property_file, float(seconds))
            yield property_file, proof_of(instance, Path(tempfile.mkdtemp(dir=folder)))


def main() -> None:
    """Print one line per property that has no checked proof; the exit code is 1 if one should have one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--instances", type=Path, default=SHARED)
    given = parser.parse_args()
    torch.set_num_threads(1)
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        found = [
            of_family(family, folder, seed=seed)
            for family in FAMILIES
            if family != S_SHAPED
            for seed in range(given.seeds)
        ]
        if given.instances.is_dir():
            found.append(of_instances(given.instances, folder))
        for name, outcome in (each for source in found for each in source):
            what = "proofs that check" if isinstance(outcome, int) else "not proved" if outcome is None else "no proof"
            if isinstance(outcome, str):
                what = "networks that steadycheck does not read" if any(part in outcome for part in UNKNOWN) else what
                print(f"{name}: {outcome}", flush=True)
            counts[what] += 1
    for what, number in sorted(counts.items()):
        print(f"{number:6,} {what}")
    raise SystemExit(1 if counts["no proof"] else 0)


if __name__ == "__main__":
    main()
