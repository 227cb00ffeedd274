"""``steadynet tune``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser, add_settings, given_settings
from steadynet.cli.train import TRAINING, add_training_settings
from steadynet.errors import UserError

if TYPE_CHECKING:
    from steadynet.experiments.tuning import TuningRecord
    from steadynet.runs.directory import RunDirectory

INHERITED = ("data", "model", "validation", "seed", "normalise")  # settings taken from the run it starts from
SEARCH = "search"  # the owner of the flags of the search


def _configure(parser: Parser) -> None:
    from steadynet.experiments.tuning import TuningBudget
    from steadynet.plugins import settings_of

    parser.add_argument(
        "--target-drop",
        nargs=2,
        type=float,
        metavar=("LEAST", "MOST"),
        required=True,
        help="how many percentage points of validation accuracy to lose: at least LEAST, at most MOST",
    )
    parser.add_argument("--out", metavar="RUN", required=True, help="the run directory to write")
    add_settings(parser, SEARCH, "settings of the search", settings_of(TuningBudget))
    add_training_settings(parser)


def _run(arguments: argparse.Namespace) -> int:
    from steadynet.cli.display.terminal import console
    from steadynet.experiments.strength_search import AccuracyWindow
    from steadynet.experiments.tuning import TuningBudget, tune
    from steadynet.runs.directory import RunDirectory

    given = given_settings(arguments, TRAINING)
    budget = TuningBudget(**given_settings(arguments, SEARCH))
    if "init" not in given:
        raise UserError("name the run to start from, such as --init runs/first")
    config = RunDirectory.existing(given["init"]).read_config().settings
    values: dict[str, Any] = {key: config[key] for key in INHERITED if key in config} | given
    out = Path(arguments.out)
    if out.exists() and not (RunDirectory(out).is_run() or RunDirectory(out).tuning.is_file()):
        raise UserError(f"{out} exists and is not a run directory: choose another --out")
    record = tune(
        values, AccuracyWindow(*arguments.target_drop), budget, out=out, trials=Path(f"{out}.trials"), train=_trained
    )
    _show(record)
    if not record.reached:
        return 1
    console.print(f"trained: {out}\nnext:    steadynet verify {shlex.quote(str(out))}", soft_wrap=True)
    return 0


def _trained(values: dict[str, Any], path: Path) -> RunDirectory:
    """Fine-tune a network into ``path``; continue a stopped fine-tuning, and do not repeat a finished one."""
    from steadynet.cli.display.training import observing
    from steadynet.runs.directory import RunDirectory
    from steadynet.training.loop import resume, train
    from steadynet.training.settings import resolve

    run, settings = RunDirectory(path), resolve(values)
    if run.weights.is_file():
        return run
    with observing(run, settings) as observer:
        if run.checkpoint.is_file():
            return resume(path, observer=observer)
        return train(settings, path, overwrite=True, observer=observer)


def _show(record: TuningRecord) -> None:
    from steadynet.cli.display.tables import table
    from steadynet.cli.display.terminal import console

    low, high = record.target_drop
    table(
        f"{record.method}: validation accuracy {record.accuracy_before:.2f} % before fine-tuning, "
        f"of which it shall lose {low:g} to {high:g} points",
        ["epochs", record.strength, "points lost"],
        [[trial.epochs, f"{trial.value:.4g}", f"{trial.drop:.2f}"] for trial in record.trials],
    )
    if record.reached:
        console.print(f"found: {record.strength} = {record.value:.4g} loses {record.drop:.2f} points")
    else:
        console.print(f"{record.method} cannot reach the window: no strength tried loses {low:g} to {high:g} points")


COMMAND = Command(
    summary="fine-tune a network so that it loses a given accuracy",
    description=(
        "Fine-tune a trained network with a method, and search the strength of the method at which validation "
        "accuracy falls by a given number of percentage points. Methods can then be compared at the same accuracy."
    ),
    usage="--init RUN --method METHOD --target-drop LEAST MOST --out RUN [options]",
    examples=("steadynet tune --init runs/first --method nbc --epochs 10 --target-drop 1 2 --out runs/tuned",),
    configure=_configure,
    run=_run,
)
