"""How long verification of a changed network takes, from scratch and from earlier proofs. Run it alone.

    python benchmarks/reuse.py RUN [RUN …] [--eps 0.2 0.3] [--reference DIR] [--timeout 15] [--repeats 2]

The network before is the reference M1 (``../shared/reference``), with its 40 images. Each RUN is made from it:

    steadynet train --data mnist --init ../shared/reference/m1_nbc.onnx --eps 0.3 --epochs 1 --train-images 38400 \\
        --lr 1e-5 --search fast --out RUN

Two more networks are made here, with weights rounded to float16, and to 8 bits per layer. Seconds are those of the
processor, of one thread, summed over the properties that both ways prove. Each way is timed several times, in turn, and
the best time of each property counts. Proofs are written first, into a folder that is removed.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from steadynet import load_trained, verify
from steadynet.verification.proofs.earlier import EarlierProofs, beginning_with
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.verifiers import Verifier, make_verifier
from verification import REFERENCE, load_reference


def main() -> None:
    """One line per network and radius."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--eps", nargs="+", type=float, default=[0.2, 0.3])
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--timeout", type=float, default=15.0)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network, images, labels = load_reference(arguments.reference)
    verifier = make_verifier("branch_and_bound", {"timeout": arguments.timeout, "clock": "cpu"})
    print(f"{'network':24}    ε  proved  from scratch s  from proofs s  ratio  no search")
    for eps in arguments.eps:
        with tempfile.TemporaryDirectory() as folder:
            found = verify(network, images, labels, eps, proofs=folder, timeout=arguments.timeout, clock="cpu")
            proved = torch.tensor([row for row, one in enumerate(found) if one.verdict is Verdict.UNSAT])
            for name, changed in networks(network, arguments.runs):
                properties = Properties.around(changed, images[proved], labels[proved], eps)
                compare(name, eps, properties, verifier, EarlierProofs(Path(folder)), arguments.repeats)


def networks(network: nn.Module, runs: list[str]) -> Iterator[tuple[str, nn.Module]]:
    """The changed networks, with names."""
    for run in runs:
        yield Path(run).name, load_trained(run).network
    for name in ("float16", "8 bits"):
        rounded = copy.deepcopy(network).requires_grad_(False)
        for weight in rounded.parameters():
            step = weight.abs().max() / 127
            weight.copy_(weight.half().float() if name == "float16" else (weight / step).round() * step)
        yield name, rounded


def compare(
    name: str, eps: float, properties: Properties, verifier: Verifier, earlier: EarlierProofs, repeats: int
) -> None:
    """Verify in both ways, in turn, and print a line."""
    ways = verifier, beginning_with(verifier, earlier)
    rounds = [[timed(each, properties) for each in ways] for _ in range(repeats)]
    fresh, reused = (best([found[side] for found in rounds]) for side in (0, 1))
    both = [
        (one, other) for one, other in zip(fresh, reused, strict=True) if one.verdict is other.verdict is Verdict.UNSAT
    ]
    totals = [sum(pair[side].seconds for pair in both) for side in (0, 1)]
    unsearched = sum(pair[1].decided_by in ("crown", "earlier proof") for pair in both)
    ratio = totals[0] / totals[1]
    print(
        f"{name:24} {eps:4g} {len(both):7} {totals[0]:15.2f} {totals[1]:14.2f} {ratio:6.2f} {unsearched:10}", flush=True
    )


def best(times: list[list[Result]]) -> list[Result]:
    """Of each property, the result that took the shortest time; one that was not proved, if there is any."""
    return [
        min(results, key=lambda one: (one.verdict is Verdict.UNSAT, one.seconds))
        for results in zip(*times, strict=True)
    ]


def timed(verifier: Verifier, properties: Properties) -> list[Result]:
    """The results; the first call of a process is not the slower one, since a small search comes first."""
    verifier(properties[:1])
    return list(verifier(properties))


if __name__ == "__main__":
    main()
