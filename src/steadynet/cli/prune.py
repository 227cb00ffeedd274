"""``steadynet prune``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from steadynet.cli.before_after import add_new_run, judge_of, observing_unless_json, show_change
from steadynet.cli.command import Command, use_threads
from steadynet.cli.parsing import Parser, add_settings, flag_of, given_settings
from steadynet.errors import UserError

if TYPE_CHECKING:
    from steadynet.runs.trained import TrainedNetwork
    from steadynet.training.pruning import PruningRecord


THRESHOLDS, HYDRA = "thresholds", "hydra"  # the two ways to prune, and the owners of their flags


def _configure(parser: Parser) -> None:
    from steadynet.plugins import settings_of
    from steadynet.training.hydra import HydraSettings
    from steadynet.training.pruning import PruningThresholds

    add_new_run(parser, "pruned")
    parser.add_argument(
        "--method",
        choices=(THRESHOLDS, HYDRA),
        default=THRESHOLDS,
        metavar=f"{THRESHOLDS}|{HYDRA}",
        help=(
            "thresholds: set small weights and rarely active ReLUs to zero; hydra: learn under the run's loss which "
            "weights matter, set the others to zero and fine-tune (default: thresholds)"
        ),
    )
    add_settings(parser, THRESHOLDS, "settings of thresholds", settings_of(PruningThresholds))
    add_settings(parser, HYDRA, "settings of hydra", settings_of(HydraSettings))


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.numbers import count_of
    from steadynet.runs.trained import load_trained

    other = HYDRA if arguments.method == THRESHOLDS else THRESHOLDS
    for name in given_settings(arguments, other):
        raise UserError(f"{flag_of(name)} is a setting of --method {other}, not of {arguments.method}")
    use_threads(arguments)
    trained = load_trained(arguments.run)
    out = arguments.out or f"{trained.run.path}-pruned"
    result = _pruned(arguments, trained, out)
    zeroed = result.zeroed
    done = f"set to zero: weights {count_of(zeroed.weights, zeroed.all_weights)}"
    if zeroed.all_relus:
        done += f", ReLUs {count_of(zeroed.relus, zeroed.all_relus)}"
    show_change(arguments, result, f"{trained.run.path}, pruned", done, out)


def _pruned(arguments: argparse.Namespace, trained: TrainedNetwork, out: str) -> PruningRecord:
    """Prune in the way that the user chose."""
    from steadynet.plugins import make
    from steadynet.training.hydra import HydraSettings
    from steadynet.training.pruning import PruningThresholds, prune_run, prune_run_by_scores

    given, judge = given_settings(arguments, arguments.method), judge_of(arguments)
    if arguments.method == HYDRA:
        with observing_unless_json(arguments) as observer:
            return prune_run_by_scores(trained, out, make(HydraSettings, given), judge=judge, observer=observer)
    limits = make(PruningThresholds, given)
    return prune_run(trained, out, weights=limits.weights, relus=limits.relus, judge=judge)


COMMAND = Command(
    summary="set weights that matter little to zero",
    description=(
        "Set weights of a trained network to zero, which makes it easier to verify: small weights and those of rarely "
        "active ReLUs, or with --method hydra those that matter least for the loss of the run. "
        "The result is a new run; the old one stays as it is."
    ),
    usage="RUN [--out RUN] [--weights N] [--relus N] [--method thresholds|hydra] [options]",
    examples=(
        "steadynet prune runs/first                                   # writes runs/first-pruned",
        "steadynet prune runs/first --relus 0.05 --out runs/lighter",
        "steadynet prune runs/first --method hydra --keep 0.2 --score-epochs 5 --epochs 5 --out runs/sparse",
    ),
    configure=_configure,
    run=_run,
)
