"""What the commands share that change a trained network and write a new run: prune, graft and sparsify."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from steadynet.cli.command import add_json, add_run, add_threads, positive_seconds
from steadynet.cli.parsing import Parser
from steadynet.training.notation import written_radius

if TYPE_CHECKING:
    from torch import nn

    from steadynet.data import Images
    from steadynet.training.figures import Judge
    from steadynet.training.grafting import GraftRecord
    from steadynet.training.observer import Observer
    from steadynet.training.pruning import PruningRecord
    from steadynet.training.sparsification import SparsificationRecord

    ChangeRecord = GraftRecord | PruningRecord | SparsificationRecord


def add_new_run(parser: Parser, ending: str) -> None:
    """Add the arguments of a command that changes the network of a run and writes it as ``RUN-ending``."""
    add_run(parser)
    parser.add_argument("--out", metavar="RUN", help=f"the run directory to write (default: RUN-{ending})")
    parser.add_argument(
        "--verify-images",
        type=_count,
        default=10,
        metavar="N",
        help="how many of the first test images to verify before and after, at the run's ε; 0 for none (default: 10)",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=5.0,
        metavar="SECONDS",
        help="seconds that the verifier gets per image (default: 5)",
    )
    add_threads(parser)
    add_json(parser)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number")
    return int(text)


def judge_of(arguments: argparse.Namespace) -> Judge:
    """Return how the network is measured before and after: by the attack and by our own verifier."""
    from steadynet.training.figures import Judge
    from steadynet.verification.properties import Verdict
    from steadynet.verification.verify import verify

    def prove(network: nn.Module, images: Images, eps: float) -> float:
        results = verify(network, images.pixels(), images.labels, eps, timeout=arguments.timeout)
        return sum(result.verdict is Verdict.UNSAT for result in results) / len(results)

    return Judge(prove, arguments.verify_images)


@contextmanager
def observing_unless_json(arguments: argparse.Namespace) -> Iterator[Observer]:
    """Show a fine-tuning, unless the user wants JSON alone."""
    from steadynet.cli.display.training import TrainingDisplay
    from steadynet.training.observer import SilentObserver

    if arguments.json:
        yield SilentObserver()
        return
    with TrainingDisplay() as display:
        yield display


def show_change(arguments: argparse.Namespace, record: ChangeRecord, title: str, done: str, out: str | Path) -> None:
    """Show what a change did to a network: a table, or with ``--json`` the record.

    Args:
        arguments: The command line.
        record: What was changed, with the figures before and after.
        title: The title of the table.
        done: What was changed, in one line.
        out: The new run.
    """
    if arguments.json:
        sys.stdout.write(json.dumps(asdict(record), indent=2) + "\n")
        return
    from steadynet.cli.display.numbers import percent
    from steadynet.cli.display.tables import table
    from steadynet.cli.display.terminal import console
    from steadynet.training.figures import ATTACK_STEPS

    before, after = record.before, record.after
    rows = [
        ["test accuracy", percent(before.accuracy), percent(after.accuracy)],
        [
            f"under PGD-{ATTACK_STEPS} at ε {written_radius(before.eps)}",
            percent(before.pgd_accuracy),
            percent(after.pgd_accuracy),
        ],
        [
            f"stable neurons (ibp) at ε {written_radius(before.eps)}",
            percent(before.stable_share_ibp),
            percent(after.stable_share_ibp),
        ],
    ]
    if before.proved is not None:
        rows.append([f"proved, of {before.verified_images} images", percent(before.proved), percent(after.proved)])
    table(title, ["", "before", "after"], rows)
    console.print(
        f"{done}\nwritten: {out}\nnext:    steadynet verify {shlex.quote(str(out))}", soft_wrap=True, markup=False
    )
