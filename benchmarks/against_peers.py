"""Our verifier beside others, on the same properties: equal time-outs, CPU seconds of one thread, in turn in one run.

    python benchmarks/against_peers.py [--reference DIR] [--runs RUN …] [--folder DIR] [--instances FILE]
        [--recorded "DIR/name_eps{eps}.csv"] [--peers marabou alpha_beta_crown] [--radii 0.1 0.2 0.3] [--count 40]
        [--timeout 60] [--in-turn 5]

``--reference`` names a folder with a network, ``m1_nbc.onnx``, and images with their labels, ``m1_40_images.npz``. Each
property of it is decided by every verifier in turn, then all of them as one batch by ours. ``--runs`` names run
directories (``steadynet zoo get`` makes some); their images are the first of the test set that the network classifies
correctly. ``--folder`` names a folder with pairs of files ``NAME.onnx`` and ``NAME.npz`` (arrays X and y). Runs and
folders are compared one property at a time. ``--instances`` names a list in the form of VNN-COMP; every instance is
decided by every verifier in turn.

A peer takes part if it is installed. α,β-CROWN (``ABCROWN_HOME`` names your copy) has its settings of VNN-COMP 2025
(``alpha_beta_crown_vnncomp2025.yaml``). Where it is not installed, ``--recorded`` names its recorded verdicts and
seconds on the reference, one file per radius; the table then says "recorded".

Seconds and time-outs are those of the processor, so the machine may be busy. α,β-CROWN gets ``--in-turn`` properties
per process and says itself what each took, without its start; its clock counts CPU seconds (``cpu_clock``). For
other peers, seconds are those of this process and of the programs that it runs, less what a program takes for a trivial
property, which is its start. Contradictions are listed by their numbers; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from comparison import Comparison, Measurement, markdown, read_recorded
from steadynet import load_trained
from steadynet.errors import UserError
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.vnnlib.files import read_vnnlib
from steadynet.verification.instances import read_instances
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.property_network import as_robustness
from steadynet.verification.replay import replay_counterexample
from steadynet.verification.verifiers import alpha_beta_crown, make_verifier
from steadynet.verification.vnncomp import Instance

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


def prepare_programs(timeout: float) -> None:
    """Let the programs that peers run use one thread and, if they are written in Python, count CPU seconds."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    folders = [str(Path(__file__).with_name("cpu_clock")), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    alpha_beta_crown.GRACE = 20 * timeout  # on a busy machine its time-out comes later by the clock on the wall


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
    for reason in {result.reason for result in results if result.verdict is Verdict.ERROR}:
        print(f"{peer.name}: {reason}", file=sys.stderr)
    return [replay_counterexample(properties, index, result) for index, result in enumerate(results)]


def in_turn(
    name: str, verifiers: Sequence[Peer], groups: Sequence[range], decide: Callable[[Peer, range], list[Measurement]]
) -> dict[str, list[Measurement]]:
    """Let every verifier decide group after group, in turn, and return the measurements by verifier."""
    found: dict[str, list[Measurement]] = {peer.name: [] for peer in verifiers}
    for numbers in groups:
        for peer in verifiers:
            for number, last in zip(numbers, decide(peer, numbers), strict=True):
                found[peer.name].append(last)
                print(f"{name}, {number}: {peer.name} {last.verdict} {last.seconds:.2f} s", file=sys.stderr, flush=True)
    return found


def one_by_one(properties: Properties, timeout: float) -> Callable[[Peer, range], list[Measurement]]:
    """How a verifier decides some of the properties, each by itself."""

    def decide_some(peer: Peer, numbers: range) -> list[Measurement]:
        if peer.name == "alpha_beta_crown":  # one process decides them one after the other, and says what each took
            found = _decided(peer, properties[numbers.start : numbers.stop], timeout)
            return [Measurement(one.verdict.value, one.seconds) for one in found]
        single = [properties[number : number + 1] for number in numbers]
        return [timed(lambda: _decided(peer, one, timeout)[0].verdict.value, peer.start) for one in single]  # noqa: B023

    return decide_some


def groups_of(count: int, size: int) -> list[range]:
    """The numbers up to ``count``, in groups."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True)
class Subject:
    """A network and labelled images."""

    name: str
    network: torch.nn.Module
    images: torch.Tensor
    labels: torch.Tensor

    @classmethod
    def of_files(cls, name: str, network: Path, images: Path) -> Subject:
        """Read an ONNX file and the arrays X and y."""
        stored = np.load(images)
        pixels, labels = torch.from_numpy(stored["X"]).float(), torch.from_numpy(stored["y"]).long()
        return cls(name, read_onnx(network), pixels, labels)

    @classmethod
    def of_run(cls, run: Path, count: int) -> Subject:
        """The network of a run, and the first test images that it classifies correctly."""
        trained = load_trained(run)
        test = trained.data().test
        images, labels = test.pixels(), torch.as_tensor(test.labels)
        with torch.no_grad():
            correct = torch.cat([trained.network(part).argmax(1) for part in images.split(256)]) == labels
        chosen = correct.nonzero().flatten()[:count]
        return cls(run.name, trained.network, images[chosen], labels[chosen])


def on_images(
    subject: Subject, arguments: argparse.Namespace, peers: Sequence[Peer], as_batch: bool
) -> list[Comparison]:
    """Compare on some images, one property at a time and, if wanted, as one batch of ours."""
    name, (ours, comparisons) = subject.name, (Peer(OURS, OUR_SETTINGS), [])
    for eps in arguments.radii:
        radius = float(Fraction(eps))
        properties = Properties.around(subject.network, subject.images, subject.labels, radius)[: arguments.count]
        single, groups = f"{name}, ε {eps}, one at a time", groups_of(len(properties), arguments.in_turn)
        found = in_turn(single, [ours, *peers], groups, one_by_one(properties, arguments.timeout))
        theirs = {peer.name: found[peer.name] for peer in peers}
        if arguments.recorded and as_batch and "alpha_beta_crown" not in theirs:
            recorded = read_recorded(Path(arguments.recorded.format(eps=eps)), arguments.timeout)
            theirs["alpha_beta_crown, recorded"] = recorded[: len(properties)]
        comparisons += [Comparison(single, peer, found[OURS], measured) for peer, measured in theirs.items()]
        if as_batch:
            results = _decided(ours, properties, arguments.timeout)
            batch = [Measurement(one.verdict.value, one.seconds) for one in results]
            together = f"{name}, ε {eps}, ours as one batch"
            comparisons += [Comparison(together, peer, batch, measured) for peer, measured in theirs.items()]
    return comparisons


def on_instances(arguments: argparse.Namespace, peers: Sequence[Peer]) -> list[Comparison]:
    """Compare on the instances of a list, each with its own time-out or the given one if that is shorter."""
    listed = [each.instance for each in read_instances(arguments.instances)]
    ours = Peer(OURS, OUR_SETTINGS)

    def decide_some(peer: Peer, numbers: range) -> list[Measurement]:
        return [decided_instance(peer, listed[number], arguments.timeout) for number in numbers]

    found = in_turn("instances", [ours, *peers], groups_of(len(listed), 1), decide_some)
    nobody = {"none installed": [Measurement("–", 0.0)] * len(listed)}
    others = {peer.name: found[peer.name] for peer in peers} or nobody
    return [Comparison("instances", peer, found[OURS], measured) for peer, measured in others.items()]


def decided_instance(peer: Peer, instance: Instance, longest: float) -> Measurement:
    """Decide one instance. Reading its files does not count. Its boxes share the time-out, if there are several."""
    asked = read_vnnlib(instance.property_file)
    groups = as_robustness(read_onnx(instance.network, asked.sample_inputs()), asked)
    timeout = min(instance.timeout, longest) / sum(map(len, groups))
    verdicts, seconds = set(), 0.0
    for group in groups:
        for one in one_by_one(group.properties, timeout)(peer, range(len(group))):
            verdicts.add(one.verdict)
            seconds += one.seconds
        if "sat" in verdicts:
            break
    return Measurement("sat" if "sat" in verdicts else max(verdicts - {"unsat"}, default="unsat"), seconds)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--instances", type=Path)
    parser.add_argument("--recorded", metavar="PATTERN", help="recorded results of α,β-CROWN, with {eps} in the name")
    parser.add_argument("--peers", nargs="*", default=list(PEER_SETTINGS))
    parser.add_argument("--radii", nargs="+", default=["0.1", "0.2", "0.3"])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--in-turn", type=int, default=5, help="properties after which the next verifier has its turn")
    arguments = parser.parse_args()
    if not (arguments.reference or arguments.runs or arguments.folder or arguments.instances):
        parser.error("name --reference, --runs, --folder or --instances")
    for eps in arguments.radii if arguments.recorded else ():
        if not Path(arguments.recorded.format(eps=eps)).is_file():
            parser.error(f"--recorded: there is no {arguments.recorded.format(eps=eps)}; write {{eps}} for the radius")
    prepare_programs(arguments.timeout)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    peers = installed(arguments.peers)
    comparisons = []
    if arguments.reference:
        reference = arguments.reference / "m1_nbc.onnx", arguments.reference / "m1_40_images.npz"
        comparisons += on_images(Subject.of_files("M1", *reference), arguments, peers, as_batch=True)
    for run in arguments.runs:
        comparisons += on_images(Subject.of_run(run, arguments.count), arguments, peers, as_batch=False)
    for network in sorted(arguments.folder.glob("*.onnx")) if arguments.folder else ():
        subject = Subject.of_files(network.stem, network, network.with_suffix(".npz"))
        comparisons += on_images(subject, arguments, peers, as_batch=False)
    comparisons += on_instances(arguments, peers) if arguments.instances else []
    print(markdown(comparisons))
    starts = ", ".join(f"{peer.name} {peer.start:.1f} s" for peer in peers)
    started = f", without the start of a program ({starts})" if starts else ""
    print(f"\nTime-out {arguments.timeout:g} s. CPU seconds of one thread{started}.")
    return int(any(comparison.contradictions for comparison in comparisons))


if __name__ == "__main__":
    sys.exit(main())
