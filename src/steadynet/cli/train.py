"""``steadynet train``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser, add_settings, given_settings, typed_values
from steadynet.errors import UserError
from steadynet.training.distributed.torchrun_env import this_process

if TYPE_CHECKING:
    from steadynet.objectives import Objective
    from steadynet.runs.directory import RunDirectory
    from steadynet.training.given_settings import GivenSettings
    from steadynet.training.settings import TrainingSettings

TRAINING = "training"  # the owner of the flags of a training and of its methods
MACHINE = ("device", "threads")  # settings that --resume may change


def _configure(parser: Parser) -> None:
    parser.add_argument("--out", metavar="RUN", help="the run directory to write (required)")
    parser.add_argument(
        "--config",
        metavar="FILE.toml",
        help="read settings from this file, with the names of the flags as keys; flags that you also give win",
    )
    parser.add_argument("--resume", action="store_true", help="continue the stopped training in --out")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    add_training_settings(parser)


def add_training_settings(parser: Parser) -> None:
    """Add one flag per setting of the training and of every method, also of those in the user's own files."""
    from steadynet import objectives
    from steadynet.cli.plugin_flags import merged_settings
    from steadynet.plugins import settings_of
    from steadynet.training.settings import TrainingSettings

    general = settings_of(TrainingSettings)
    names = {entry.name for entry in general}  # l1_weight is a setting of the training and of some methods
    methods = objectives.available() | _typed_methods(parser.words)
    of_methods = [entry for entry in merged_settings(methods) if entry.name not in names]
    add_settings(parser, TRAINING, "settings of the training", general)
    add_settings(parser, TRAINING, "settings of the methods", of_methods)


def _typed_methods(words: list[str]) -> dict[str, type[Objective]]:
    """Load the methods in users' own files that ``--method`` and ``--phases`` name."""
    from steadynet import objectives
    from steadynet.plugins import split_reference
    from steadynet.training.notation import parse_phases

    methods = typed_values(words, "--method")
    methods += [phase.method for text in typed_values(words, "--phases") for phase in parse_phases(text)]
    parts = [part.strip() for method in methods for part in method.split("+")]
    return {part: objectives.named(part) for part in parts if split_reference(part)}


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console, messages
    from steadynet.runs.directory import RunDirectory
    from steadynet.training.given_settings import GivenSettings, read_settings
    from steadynet.training.settings import resolve

    console.quiet = messages.quiet = not this_process().is_rank_zero
    given = GivenSettings(given_settings(arguments, TRAINING))
    if arguments.config:
        given = read_settings(Path(arguments.config)).overridden_by(given)
    if not arguments.out:
        raise UserError("name the run directory to write, such as --out runs/first")
    if arguments.resume and arguments.overwrite:
        raise UserError("--resume continues a run and --overwrite starts again: give one of them, not both")
    run = RunDirectory(Path(arguments.out))
    if arguments.resume and run.config.is_file():
        if not _resume(run, given):
            console.print(f"{run.path} is finished: there is nothing to resume", soft_wrap=True)
            return
    elif arguments.resume and given == GivenSettings():
        raise UserError(f"there is no run in {run.path} to resume: leave out --resume to start one")
    else:
        _start(run, resolve(given), arguments.overwrite)
    path = shlex.quote(str(run.path))
    console.print(f"trained: {run.path}\nnext:    steadynet evaluate {path} --eps 0.1 0.2 0.3", soft_wrap=True)


def _start(run: RunDirectory, settings: TrainingSettings, overwrite: bool) -> None:
    from steadynet.cli.display.training import observing
    from steadynet.training.loop import train

    with observing(run, settings) as observer:
        train(settings, run.path, overwrite=overwrite, observer=observer)


def _resume(run: RunDirectory, given: GivenSettings) -> bool:
    """Resume a run with its own settings; return False if it was finished already."""
    from steadynet.cli.display.training import observing
    from steadynet.training.given_settings import GivenSettings
    from steadynet.training.loop import resume
    from steadynet.training.settings import resolve

    own = GivenSettings.parse(run.read_config().settings)
    settings = resolve(own, run.method_sources)
    machine = {key: given.values[key] for key in MACHINE if key in given.values}
    others = {key: value for key, value in given.values.items() if key not in MACHINE}
    wanted = resolve(own.overridden_by(GivenSettings(others, given.methods)), run.method_sources).as_config()
    changed = sorted(key for key in wanted if wanted[key] != settings.as_config().get(key))
    if changed:
        raise UserError(f"--resume keeps the run's settings, but {', '.join(changed)} would change: leave them out")
    if run.weights.is_file():
        return False
    with observing(run, settings) as observer:
        resume(run.path, observer=observer, **machine)
    return True


COMMAND = Command(
    summary="train a network",
    description=(
        "Train a network and write it into a run directory. "
        "Learning rate, schedule and warm-up that you do not give suit the data set, the method and the number of "
        "epochs. Other settings are those that the authors of the method published for the data set and the radius, "
        "where they did; otherwise the defaults below. The radius ε is in units of pixel values from 0 to 1. "
        "If you stop it, steadynet train --resume --out RUN continues."
    ),
    usage="--out RUN [--data DATA] [--model MODEL] [--method METHOD] [--eps RADIUS] [options]",
    examples=(
        "steadynet train --method nbc --out runs/first    # on the built-in digits",
        "steadynet train --data digits --method trades+nbc --eps 0.1 --epochs 10 --out runs/second",
    ),
    configure=_configure,
    run=_run,
)
