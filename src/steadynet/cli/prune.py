"""``steadynet prune``."""

from __future__ import annotations

import argparse
import json
import sys

from steadynet.cli.before_after import add_new_run, judge_of, show_before_after
from steadynet.cli.command import Command, use_threads
from steadynet.cli.parsing import Parser


def _configure(parser: Parser) -> None:
    add_new_run(parser, "pruned")
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


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.tables import count_of
    from steadynet.runs.trained import load_trained
    from steadynet.training.pruning import prune_run

    use_threads(arguments)
    trained = load_trained(arguments.run)
    out = arguments.out or f"{trained.run.path}-pruned"
    result = prune_run(trained, out, weights=arguments.weights, relus=arguments.relus, judge=judge_of(arguments))
    if arguments.json:
        sys.stdout.write(json.dumps(result.to_json(), indent=2) + "\n")
        return
    zeroed = result.zeroed
    done = (
        f"set to zero: weights {count_of(zeroed.weights, zeroed.all_weights)}, "
        f"ReLUs {count_of(zeroed.relus, zeroed.all_relus)}"
    )
    show_before_after(f"{trained.run.path}, pruned", result.before, result.after, done, out)


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
