"""What each piece of the verifier brings: the reference properties with one piece switched off at a time.

    python benchmarks/ablation.py [--reference DIR] [--radii 0.1 0.2 0.3] [--timeout 3] [--count 40] [--pieces NAME ...]

The reference is that of ``verification.py``. All properties of a radius are verified as one batch on one thread. For
each piece, a line says how many are decided and in how many CPU seconds, time-outs included. The pieces take turns
within a radius, so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound
from verification import REFERENCE, load_reference

SEARCH, BOUNDS = "steadynet.verification.search", "steadynet.bounds"


@dataclass(frozen=True)
class Piece:
    """A piece of the verifier, and what switches it off: constants of its modules, or settings."""

    name: str
    off: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        """Switch the piece off for a while."""
        patches = [patch(name, value) for name, value in self.off.items()]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()


PIECES = (
    Piece("everything on"),
    Piece("smaller network", settings={"condense": False}),
    Piece("smaller network kept for the search", {f"{SEARCH}.condensed_search.KEPT_ENTRIES": 0}),
    Piece(
        "refined inner bounds", {f"{SEARCH}.condensed_search.refined_by_condensed": lambda network, *_: network.whole}
    ),
    Piece("refinement in blocks", {f"{BOUNDS}.local_ascent.LOCAL": False}),
    Piece("hopeless first look ends early", {f"{SEARCH}.condensed_splitting.MOST_EXPECTED": float("inf")}),
    Piece(
        "multipliers in units of coefficients",
        {f"{BOUNDS}.condensed_bounds._units": lambda network, found, splits: torch.full_like(splits.beta, 0.4)},
    ),  # 0.4 times the rate of 0.4 is the step before there were units
    Piece("proofs wait for one pass", {f"{SEARCH}.condensed_splitting.PROOFS_AT_ONCE": 1}),
    Piece(
        "second attack comes late",
        {f"{SEARCH}.condensed_splitting.LATE_ATTACK": None, f"{SEARCH}.condensed_search.LATE_ATTACK": None},
    ),
    Piece("first attack ends without hope", {f"{SEARCH}.attack.PACE": 1 << 30}),
    Piece("attacks", settings={"restarts": 0, "attack_steps": 0}),
    Piece("one bound where the sign is known", {f"{BOUNDS}.sharpening.SECOND_BOUNDS": True}),
    Piece("channels that are never active left out", {f"{BOUNDS}.thinning.THINNING": False}),
    Piece("neurons that are never active left out", {f"{BOUNDS}.flattening.FLATTENING": False}),
    Piece("attack before the first bounds", {f"{SEARCH}.pipeline.ATTACK_FIRST": False}),
    Piece("symbolic intervals, which large networks have", {f"{BOUNDS}.crown.SYMBOLIC": False}),
    Piece("transposes by the number of channels", {"steadynet.graph.operations.FAST_TRANSPOSES": False}),
    Piece("windows with channels last", {f"{BOUNDS}.window_transposes.CHANNELS_LAST_WINDOWS": False}),
    Piece("functions of one window together", {f"{BOUNDS}.patches.LEAST_OF_A_RUN": 1 << 60}),
)


def measured(piece: Piece, properties: Properties, timeout: float) -> tuple[int, float]:
    """How many properties are decided without a piece, and the CPU seconds of all of them."""
    torch.manual_seed(0)
    started = time.process_time()
    with piece.switched_off():
        results = BranchAndBound(timeout=timeout, clock="cpu", **piece.settings)(properties)
    decided = sum(result.verdict in (Verdict.SAT, Verdict.UNSAT) for result in results)
    return decided, time.process_time() - started


def table(pieces: Sequence[Piece], found: Mapping[str, Sequence[tuple[int, float]]], radii: Sequence[str]) -> str:
    """The table in Markdown."""
    lines = ["| without | " + " | ".join(f"ε {eps}" for eps in radii) + " |", "|---" * (1 + len(radii)) + "|"]
    for piece in pieces:
        cells = [f"{decided}, {seconds:.1f} s" for decided, seconds in found[piece.name]]
        lines.append(f"| {piece.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--radii", nargs="+", default=["0.1", "0.2", "0.3"])
    parser.add_argument("--timeout", type=float, default=3.0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--pieces", nargs="*", help="only these, by their names")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network, images, labels = load_reference(arguments.reference)
    pieces = [piece for piece in PIECES if not arguments.pieces or piece.name in arguments.pieces]
    found: dict[str, list[tuple[int, float]]] = {piece.name: [] for piece in pieces}
    for eps in arguments.radii:
        properties = Properties.around(network, images, labels, float(eps))[: arguments.count]
        measured(pieces[0], properties[:2], arguments.timeout)  # what happens once only
        for piece in pieces:
            found[piece.name].append(measured(piece, properties, arguments.timeout))
            decided, seconds = found[piece.name][-1]
            print(f"ε {eps}, without {piece.name}: {decided} decided, {seconds:.2f} s", flush=True)
    print(table(pieces, found, arguments.radii))


if __name__ == "__main__":
    main()
