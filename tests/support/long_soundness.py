"""The long form of the soundness checks, in several processes: ``make soundness``.

1. The self-test on many networks of each kind, for ``branch_and_bound`` and ``milp``.
2. Thousands of random small networks, decided by both: no contradiction, every verdict checked by force.
3. The self-test for the other verifiers that are installed. Their wrong verdicts are shown, but do not count: they
   compute with tolerances.

The last line says how many properties were decided, and how many wrongly.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import soundness
from steadynet.bounds import crown, flattening, sparse_layers
from steadynet.errors import UserError
from steadynet.verification.properties import Verdict
from steadynet.verification.search import input_splitting, pipeline, program_splitting
from steadynet.verification.self_test.families import FAMILIES
from steadynet.verification.self_test.known import Outcome
from steadynet.verification.self_test.run import SelfTest
from steadynet.verification.verifiers import make_verifier

OURS = ("branch_and_bound", "milp")
OTHERS = ("marabou", "alpha_beta_crown")
TIMEOUT = 5.0  # seconds for each property of the self-test
CHUNK = 77  # random networks that one process decides at a time
TOO_LARGE = {"milp": ("trained",), "marabou": ("trained", "readers")}  # families that take these verifiers too long


@dataclass(frozen=True)
class Part:
    """A piece of work for one process: a self-test, or random networks if there is no ``verifier``.

    With ``halve``, boxes are halved whatever the network; with ``straight``, the search goes straight to the condensed
    networks; with ``programs``, straight to linear programs. Most random networks would be decided before. With
    ``symbolic``, small networks are bounded as large ones are: one property at a time, with an attack first, symbolic
    intervals, and feature maps as lists of active neurons.
    """

    first: int
    networks: int
    verifier: str = ""
    family: str = ""
    halve: bool = False
    straight: bool = False
    programs: bool = False
    symbolic: bool = False


@dataclass(frozen=True)
class Count:
    """What a part found: verdicts and wrong ones by verifier, with one line per wrong one."""

    decided: Counter[str]
    undecided: Counter[str]
    wrong: Counter[str]
    lines: tuple[str, ...]
    seconds: float  # of CPU time

    @classmethod
    def total(cls, counts: Iterable[Count]) -> Count:
        """The sum of several counts."""
        found = list(counts)
        sums = (sum((getattr(count, name) for count in found), Counter()) for name in ("decided", "undecided", "wrong"))
        lines = tuple(line for count in found for line in count.lines)
        return cls(*sums, lines, sum(count.seconds for count in found))


def run(part: Part) -> Count:
    """Do one piece of work."""
    started = cpu_seconds()
    with bounded_as_large(part.first) if part.symbolic else nullcontext():
        count = self_test(part) if part.verifier else random_networks(part)
    return Count(*count, cpu_seconds() - started)


@contextmanager
def bounded_as_large(number: int) -> Iterator[None]:
    """Small networks are bounded as large ones are; sparse matrices are dense blocks in every other part."""
    settings: list[tuple[Any, str, float]] = [
        (crown, "LARGE_MAP", 1),
        (crown, "LEAST_FLATTENED", 1),
        (flattening, "LEAST_NEURONS", 1),
        (flattening, "MOST_ACTIVE", 1.0),
        (sparse_layers, "LEAST_BLOCK", number % 2 * sparse_layers.LEAST_BLOCK),
    ]
    with ExitStack() as stack:
        for module, name, value in settings:
            stack.enter_context(patch.object(module, name, value))
        yield


def cpu_seconds() -> float:
    """CPU time of this process and of the tools that it ran."""
    return sum(os.times()[:4])


def self_test(part: Part) -> tuple[Counter[str], Counter[str], Counter[str], tuple[str, ...]]:
    """Decide networks of each kind of one family."""
    alone = {"group": 1} if part.symbolic and part.verifier == "branch_and_bound" else {}
    test = SelfTest(part.verifier, {"timeout": TIMEOUT, **alone}, part.networks, part.first, [part.family])
    result, name = test.run(), part.verifier
    total, wrong = result.total(), result.wrong()
    return (
        Counter({name: total.of(Outcome.RIGHT)}),
        Counter({name: total.tried - total.decided}),
        Counter({name: len(wrong)}),
        tuple(f"{name}: {judgement.describe()}" for judgement in wrong),
    )


def random_networks(part: Part) -> tuple[Counter[str], Counter[str], Counter[str], tuple[str, ...]]:
    """Decide random networks by both verifiers. A complaint counts as wrong for each of them."""
    decided, undecided, wrong, lines = Counter[str](), Counter[str](), Counter[str](), list[str]()
    usual = (
        input_splitting.LEAST_UNSTABLE,
        pipeline.FIRST_LOOK,
        pipeline.FEW_INPUTS,
        program_splitting.FIRST,
        program_splitting.MOST_INPUTS,
    )
    input_splitting.LEAST_UNSTABLE = 1 if part.halve else usual[0]
    pipeline.FIRST_LOOK, pipeline.FEW_INPUTS = (1, 0) if part.straight else (0 if part.programs else usual[1], usual[2])
    program_splitting.FIRST = 0 if part.programs else usual[3]
    program_splitting.MOST_INPUTS = -1 if part.straight else usual[4]
    seeds = range(part.first, part.first + part.networks)
    cases = [(seed, None) for seed in seeds] + [(seed, soundness.UNUSUAL) for seed in seeds[:: len(soundness.KINDS)]]
    for seed, kind in cases:
        case = soundness.make(seed, kind)
        verifiers = soundness.verifiers(group=1 if part.symbolic else None)
        results, complaints = soundness.check(case, verifiers, in_time=False)  # the machine may be busy
        for name, of_all in results.items():
            found = [result.verdict in (Verdict.SAT, Verdict.UNSAT) for result in of_all]
            decided[name] += sum(found)
            undecided[name] += len(found) - sum(found)
            wrong[name] += bool(complaints)
        lines += [f"random network {seed} ({case.kind}): {line}" for line in complaints]
    input_splitting.LEAST_UNSTABLE, pipeline.FIRST_LOOK, pipeline.FEW_INPUTS = usual[:3]
    program_splitting.FIRST, program_splitting.MOST_INPUTS = usual[3:]
    return decided, undecided, wrong, tuple(lines)


def planned(networks: int, random: int, others: int) -> list[Part]:
    """All pieces of work, the longest ones first."""
    parts = []
    counts = {"branch_and_bound": networks, "milp": max(1, networks // 4)}
    counts.update({name: others for name in OTHERS if others and installed(name)})
    for name, count in counts.items():
        for family in FAMILIES:
            if family not in TOO_LARGE.get(name, ()):
                step = max(1, round(10 / FAMILIES[family].share))
                starts = range(0, count, step)
                parts += [Part(first, min(step, count - first), name, family, symbolic=True) for first in starts[::2]]
                parts += [Part(first, min(step, count - first), name, family) for first in starts[1::2]]
    for first in range(0, random, CHUNK):
        parts.append(Part(first, min(CHUNK, random - first)))
    half = random // 2
    for first in range(0, half, CHUNK):
        parts.append(Part(random + first, min(CHUNK, half - first), halve=True))
        parts.append(Part(random + half + first, min(CHUNK, half - first), straight=True, symbolic=True))
        parts.append(Part(random + 2 * half + first, min(CHUNK, half - first), programs=True))
    return parts


def installed(verifier: str) -> bool:
    """Whether a verifier by others can be used here."""
    try:
        make_verifier(verifier, {})
    except UserError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--networks", type=int, default=40, help="networks of each kind in the self-test; a fourth for milp"
    )
    parser.add_argument("--random", type=int, default=2002, help="random networks; half as many for each other way")
    parser.add_argument("--others", type=int, default=2, help="networks of each kind for other verifiers")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    parts, found, started = (
        planned(options.networks, options.random, options.others),
        list[Count](),
        time.perf_counter(),
    )
    with ProcessPoolExecutor(options.processes) as pool:
        for future in as_completed([pool.submit(run, part) for part in parts]):
            found.append(future.result())
            for line in found[-1].lines:
                print(line, flush=True)
            decided = Count.total(found).decided
            by_verifier = ", ".join(f"{number:,} by {name}" for name, number in decided.items())
            sys.stderr.write(f"\r{len(found)} of {len(parts)} parts; decided: {by_verifier} ")
    sys.stderr.write("\n")
    total = Count.total(found)
    for name in total.decided:
        print(f"{name}: {total.decided[name]} decided, {total.undecided[name]} undecided, {total.wrong[name]} wrong")
    print(f"{total.seconds / 60:.0f} min of CPU time, {(time.perf_counter() - started) / 60:.0f} min")
    wrong = sum(total.wrong[name] for name in OURS)
    print(f"properties decided: {' and '.join(f'{total.decided[name]:,} by {name}' for name in OURS)}; {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
