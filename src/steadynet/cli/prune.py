"""``steadynet prune``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from steadynet.cli.command import Command, add_json, add_run
from steadynet.cli.parsing import Parser


def _configure(parser: Parser) -> None:
    add_run(parser)
    parser.add_argument("--out", metavar="RUN", help="the run directory to write (default: RUN-pruned)")
    parser.add_argument(
        "--weights",
        type=float,
        default=1e-3,
        metavar="N",
        help="set weights whose absolute value is smaller than this to zero (default: 0.001)",
    )
    parser.add_argument(
        "--relus",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="remove ReLUs that are active on at most this share of the training images (default: 0.1)",
    )
    add_json(parser)


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.tables import count_of, percent, table
    from steadynet.cli.display.terminal import console
    from steadynet.runs.trained import load_trained
    from steadynet.training.pruning import prune_run

    trained = load_trained(arguments.run)
    out = arguments.out or f"{trained.run.path}-pruned"
    result = prune_run(trained, out, weights=arguments.weights, relus=arguments.relus)
    if arguments.json:
        sys.stdout.write(json.dumps(result.to_json(), indent=2) + "\n")
        return
    before, after, zeroed = result.before, result.after, result.zeroed
    table(
        f"{trained.run.path}, pruned",
        ["", "before", "after"],
        [
            ["test accuracy", percent(before.accuracy), percent(after.accuracy)],
            [
                f"stable neurons (ibp) at ε {before.eps:.4g}",
                percent(before.stable_share_ibp),
                percent(after.stable_share_ibp),
            ],
        ],
    )
    console.print(
        f"set to zero: weights {count_of(zeroed.weights, zeroed.all_weights)}, "
        f"ReLUs {count_of(zeroed.relus, zeroed.all_relus)}\n"
        f"written: {out}\nnext:    steadynet verify {shlex.quote(str(out))}",
        soft_wrap=True,
    )


COMMAND = Command(
    summary="set small weights and rarely active ReLUs to zero",
    description=(
        "Set small weights and rarely active ReLUs of a trained network to zero, which makes it easier to verify. "
        "The result is a new run; the old one stays as it is."
    ),
    usage="RUN [--out RUN] [--weights N] [--relus SHARE] [options]",
    examples=(
        "steadynet prune runs/first                                   # writes runs/first-pruned",
        "steadynet prune runs/first --relus 0.05 --out runs/lighter",
    ),
    configure=_configure,
    run=_run,
)
