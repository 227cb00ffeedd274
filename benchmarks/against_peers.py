"""Our verifier beside others, on the same properties: equal time-outs, CPU seconds of one thread, in turn in one run.

    python benchmarks/against_peers.py [--reference DIR] [--instances FILE] [--recorded "DIR/name_eps{eps}.csv"]
        [--peers marabou alpha_beta_crown] [--radii 0.1 0.2 0.3] [--count 40] [--timeout 60]

``--reference`` names a folder with a network, ``m1_nbc.onnx``, and images with their labels, ``m1_40_images.npz``. Each
property of it is decided by every verifier in turn, then all of them as one batch by ours. ``--instances`` names a list
in the form of VNN-COMP; every instance is decided by every verifier in turn.

A peer takes part if it is installed. α,β-CROWN (``ABCROWN_HOME`` names your copy) has its settings of VNN-COMP 2025
(``alpha_beta_crown_vnncomp2025.yaml``). Where it is not installed, ``--recorded`` names its recorded verdicts and
seconds on the reference, one file per radius; the table then says "recorded".

Seconds are those of the processor: of this process, and for a peer also of the programs that it runs, less what a
program takes for a trivial property, which is its start. The time-out of ours counts CPU seconds, that of a program
those of the wall, so run it on an idle machine. Contradictions are listed by their numbers; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from comparison import Comparison, Measurement, markdown, read_recorded
from steadynet.errors import UserError
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.verification.instances import read_instances
from steadynet.verification.properties import Properties, Result
from steadynet.verification.verify import make_verifier, replay_counterexample
from steadynet.verification.vnncomp import Instance, decide

OURS = "branch_and_bound"
OUR_SETTINGS: dict[str, object] = {"clock": "cpu"}
PEER_SETTINGS: dict[str, dict[str, object]] = {
    "alpha_beta_crown": {"abcrown_config": str(Path(__file__).with_name("alpha_beta_crown_vnncomp2025.yaml"))},
    "marabou": {},
}


@dataclass(frozen=True)
class Peer:
    """An installed verifier, its settings, and the CPU seconds that its start takes."""

    name: str
    settings: Mapping[str, object]
    start: float = 0.0


def cpu_seconds() -> float:
    """CPU seconds of this process, and of the programs that it ran and waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def timed(verdict: Callable[[], str], start: float = 0.0) -> Measurement:
    """Measure one decision, without the start of a program."""
    before = cpu_seconds()
    found = verdict()
    return Measurement(found, max(cpu_seconds() - before - start, 0.0))


def installed(names: Sequence[str]) -> list[Peer]:
    """Return the peers that can be run, and say which cannot."""
    peers = []
    for name in names:
        settings = PEER_SETTINGS.get(name, {})
        try:
            make_verifier(name, settings)
        except UserError as error:
            print(f"{name} takes no part: {error}", file=sys.stderr)
            continue
        peers.append(Peer(name, settings, _start(Peer(name, settings))))
    return peers


def _start(peer: Peer) -> float:
    """CPU seconds that a peer takes for a trivial property."""
    trivial = _trivial()
    return timed(lambda: _decided(peer, trivial, 60.0)[0].verdict.value).seconds


def _trivial() -> Properties:
    """A property of one linear layer, which holds: what a program takes for it is its start."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1, 2))
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[1.0], [0.0]]))
        network[1].bias.zero_()
    return Properties.around(network, torch.full((1, 1, 1, 1), 0.5), torch.tensor([0]), 0.1)


def _decided(peer: Peer, properties: Properties, timeout: float) -> list[Result]:
    results = make_verifier(peer.name, {**peer.settings, "timeout": timeout})(properties)
    return [replay_counterexample(properties, index, result) for index, result in enumerate(results)]


def in_turn(
    name: str, verifiers: Sequence[Peer], numbers: range, verdict: Callable[[Peer, int], str]
) -> dict[str, list[Measurement]]:
    """Let every verifier decide property after property, in turn, and return the measurements by verifier."""
    found: dict[str, list[Measurement]] = {peer.name: [] for peer in verifiers}
    for number in numbers:
        for peer in verifiers:
            found[peer.name].append(timed(lambda: verdict(peer, number), peer.start))  # noqa: B023 (called at once)
            last = found[peer.name][-1]
            print(f"{name}, {number}: {peer.name} {last.verdict} {last.seconds:.2f} s", file=sys.stderr, flush=True)
    return found


def on_reference(arguments: argparse.Namespace, peers: Sequence[Peer]) -> list[Comparison]:
    """Compare on the reference network, one property at a time and as one batch."""
    network = read_onnx(arguments.reference / "m1_nbc.onnx")
    stored = np.load(arguments.reference / "m1_40_images.npz")
    images, labels = torch.from_numpy(stored["X"]).float(), torch.from_numpy(stored["y"]).long()
    ours, timeout, comparisons = Peer(OURS, OUR_SETTINGS), arguments.timeout, []
    for eps in arguments.radii:
        properties = Properties.around(network, images, labels, float(eps))[: arguments.count]

        def verdict(peer: Peer, number: int, asked: Properties = properties) -> str:
            return _decided(peer, asked[number : number + 1], timeout)[0].verdict.value

        single = f"M1, ε {eps}, one at a time"
        found = in_turn(single, [ours, *peers], range(len(properties)), verdict)
        batch = [Measurement(one.verdict.value, one.seconds) for one in _decided(ours, properties, timeout)]
        theirs = {peer.name: found[peer.name] for peer in peers}
        if arguments.recorded and "alpha_beta_crown" not in theirs:
            recorded = read_recorded(Path(arguments.recorded.format(eps=eps)), timeout)
            theirs["alpha_beta_crown, recorded"] = recorded[: len(properties)]
        for peer, measured in theirs.items():
            comparisons.append(Comparison(single, peer, found[OURS], measured))
            comparisons.append(Comparison(f"M1, ε {eps}, ours as one batch", peer, batch, measured))
    return comparisons


def on_instances(arguments: argparse.Namespace, peers: Sequence[Peer]) -> list[Comparison]:
    """Compare on the instances of a list, each with its own time-out or the given one if that is shorter."""
    listed = [each.instance for each in read_instances(arguments.instances)]
    ours = Peer(OURS, OUR_SETTINGS)

    def verdict(peer: Peer, number: int) -> str:
        asked = listed[number]
        timeout = min(asked.timeout, arguments.timeout)
        return decide(Instance(asked.network, asked.property_file, timeout), peer.name, **peer.settings).verdict.value

    found = in_turn("instances", [ours, *peers], range(len(listed)), verdict)
    nobody = {"none installed": [Measurement("–", 0.0)] * len(listed)}
    others = {peer.name: found[peer.name] for peer in peers} or nobody
    return [Comparison("instances", peer, found[OURS], measured) for peer, measured in others.items()]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--instances", type=Path)
    parser.add_argument("--recorded", metavar="PATTERN", help="recorded results of α,β-CROWN, with {eps} in the name")
    parser.add_argument("--peers", nargs="*", default=list(PEER_SETTINGS))
    parser.add_argument("--radii", nargs="+", default=["0.1", "0.2", "0.3"])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--timeout", type=float, default=60.0)
    arguments = parser.parse_args()
    if arguments.reference is None and arguments.instances is None:
        parser.error("name --reference, --instances or both")
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # for the programs that peers run
    torch.set_num_threads(1)
    torch.manual_seed(0)
    peers = installed(arguments.peers)
    comparisons = on_reference(arguments, peers) if arguments.reference else []
    comparisons += on_instances(arguments, peers) if arguments.instances else []
    print(markdown(comparisons))
    starts = ", ".join(f"{peer.name} {peer.start:.1f} s" for peer in peers)
    started = f", without the start of a program ({starts})" if starts else ""
    print(f"\nTime-out {arguments.timeout:g} s. CPU seconds of one thread{started}.")
    return int(any(comparison.contradictions for comparison in comparisons))


if __name__ == "__main__":
    sys.exit(main())
