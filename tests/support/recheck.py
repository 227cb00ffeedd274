"""Decide published verdicts again, from the published weights. ``make recheck`` does it with all of them.

A verdict is contradicted if a proof becomes a counterexample, or a counterexample a proof. A time-out is no
contradiction.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from steadynet.experiments.shards import load_data
from steadynet.experiments.take_up import is_finished
from steadynet.experiments.zoo import ZooNetwork, networks_in
from steadynet.report.data_sets import is_here
from steadynet.runs.trained import load_trained
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.verdicts import Row, read_rows
from steadynet.verification.verifiers import make_verifier

RESULTS = Path(__file__).parents[2] / "results"
DECIDED = {Verdict.UNSAT, Verdict.SAT}


@dataclass(frozen=True)
class Rechecked:
    """A published verdict, and what was found now."""

    network: ZooNetwork
    row: Row
    now: Verdict

    @property
    def is_contradiction(self) -> bool:
        return {self.row.verdict, self.now} == DECIDED

    def __str__(self) -> str:
        place = f"{self.network.name}, test image {self.row.index}, ε {self.row.eps:g}"
        return f"{place}: published {self.row.verdict.value}, now {self.now.value}"


def published_verdicts(results: Path) -> list[tuple[ZooNetwork, Row]]:
    """All verdicts on networks whose weights are published and whose data is on this machine."""
    networks = [network for network in networks_in(results).values() if is_here(network.cell.data)]
    return [(network, row) for network in networks for row in read_rows(network.run)]


def drawn(verdicts: Sequence[tuple[ZooNetwork, Row]], count: int, seed: str) -> list[tuple[ZooNetwork, Row]]:
    """So many of them at random."""
    return random.Random(seed).sample(list(verdicts), min(count, len(verdicts)))


def recheck(verdicts: Sequence[tuple[ZooNetwork, Row]], timeout: float | None = None) -> Iterator[Rechecked]:
    """Decide these properties again, with this time-out or with those that they had."""
    by_network: dict[str, list[tuple[ZooNetwork, Row]]] = {}
    for network, row in verdicts:
        by_network.setdefault(network.name, []).append((network, row))
    for group in by_network.values():
        network = group[0][0]
        check_keys(network)
        trained, test = load_trained(network.run.path).network, load_data(network.cell.data).test
        for _, row in group:
            index = torch.tensor([row.index])
            assert int(test.labels[row.index]) == row.label
            properties = Properties.around(trained, test.pixels(index), test.labels[index], row.eps)
            found: list[Result] = []
            verifier = make_verifier("branch_and_bound", {"timeout": timeout or row.timeout, "clock": "cpu"})
            verifier.verify(properties, lambda number, result, found=found: found.append(result))
            yield Rechecked(network, row, found[0].verdict)


def check_keys(network: ZooNetwork) -> None:
    """The verdicts are those of this network: their keys are made of its weights."""
    index = tuple(dict.fromkeys(row.index for row in read_rows(network.run)))
    plan = network.cell.verification_plan(index)
    assert is_finished(network.run, network.cell, plan), f"{network.name}: verdicts of another network or version"


def main() -> int:
    """Check all published verdicts."""
    started, counts, wrong = time.process_time(), Counter(), []
    verdicts = published_verdicts(RESULTS) if RESULTS.is_dir() else []
    for number, found in enumerate(recheck(verdicts), 1):
        counts[found.row.verdict.value, found.now.value] += 1
        if found.is_contradiction:
            wrong.append(found)
            print(f"CONTRADICTION: {found}", flush=True)
        if number % 100 == 0:
            print(f"{number} of {len(verdicts)}, {time.process_time() - started:.0f} CPU s", flush=True)
    for (before, now), count in sorted(counts.items()):
        print(f"published {before}, now {now}: {count}")
    print(f"{len(verdicts)} published verdicts, {len(wrong)} contradictions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
