"""``steadynet train``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser, add_settings, given_settings
from steadynet.errors import UserError
from steadynet.training.distributed.torchrun_env import this_process

if TYPE_CHECKING:
    from steadynet.runs.directory import RunDirectory
    from steadynet.training.settings import TrainingSettings

TRAINING = "training"  # the owner of the flags of a training and of its methods
MACHINE = ("device", "threads")  # settings that may change from one half of a training to the other


def _configure(parser: Parser) -> None:
    parser.add_argument("--out", metavar="RUN", help="the run directory to write")
    parser.add_argument("--config", metavar="FILE.toml", help="settings from a file: every flag is a key")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    add_training_settings(parser)


def add_training_settings(parser: Parser) -> None:
    """Add one flag per setting of the training and of every method."""
    from steadynet import objectives
    from steadynet.cli.plugin_flags import merged_settings
    from steadynet.plugins import settings_of
    from steadynet.training.settings import TrainingSettings

    add_settings(parser, TRAINING, "settings of the training", settings_of(TrainingSettings))
    add_settings(parser, TRAINING, "settings of the methods", merged_settings(objectives.available()))


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console, messages
    from steadynet.files import read_toml
    from steadynet.runs.directory import RunDirectory
    from steadynet.training.settings import merge, resolve

    console.quiet = messages.quiet = not this_process().is_first
    given = given_settings(arguments, TRAINING)
    if arguments.config:
        given = merge(read_toml(Path(arguments.config)), given)
    if not arguments.out:
        raise UserError("--out says where to write the run: --out runs/first")
    if arguments.resume and arguments.overwrite:
        raise UserError("--resume goes on with a run, --overwrite starts anew: give one of them")
    run = RunDirectory(Path(arguments.out))
    if arguments.resume and run.config.is_file():
        if not _go_on(run, given):
            console.print(f"{run.path} is finished", soft_wrap=True)
            return
    elif arguments.resume and not given:
        raise UserError(f"there is no run in {run.path} to go on with")
    else:
        _start(run, resolve(given), arguments.overwrite)
    path = shlex.quote(str(run.path))
    console.print(f"trained: {run.path}\nnext:    steadynet evaluate {path} --eps 0.1 0.2 0.3", soft_wrap=True)


def _start(run: RunDirectory, settings: TrainingSettings, overwrite: bool) -> None:
    from steadynet.cli.display.training import observing
    from steadynet.training.loop import train

    with observing(run, settings) as observer:
        train(settings, run.path, overwrite=overwrite, observer=observer)


def _go_on(run: RunDirectory, given: dict[str, Any]) -> bool:
    """Go on with a run by its own settings; False if it was finished already."""
    from steadynet.cli.display.training import observing
    from steadynet.training.loop import resume
    from steadynet.training.settings import merge, resolve

    config = run.read_config()
    settings = resolve(config.settings)
    given_anew = {key: value for key, value in given.items() if key not in MACHINE}
    wanted = resolve(merge(config.settings, given_anew)).as_config()
    changed = sorted(key for key in wanted if wanted[key] != settings.as_config().get(key))
    if changed:
        raise UserError(f"--resume goes on with the run's own settings, but {', '.join(changed)} would change")
    if run.weights.is_file():
        return False
    with observing(run, settings) as observer:
        resume(run.path, observer=observer, **{key: given[key] for key in MACHINE if key in given})
    return True


COMMAND = Command("train a network", _configure, _run)
