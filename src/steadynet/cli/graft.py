"""``steadynet graft``."""

from __future__ import annotations

import argparse

from steadynet.cli.before_after import add_new_run, judge_of, observing_unless_json, show_change
from steadynet.cli.command import Command, use_threads
from steadynet.cli.parsing import Parser, add_settings, given_settings

GRAFTING = "grafting"  # the owner of the flags of grafting


def _configure(parser: Parser) -> None:
    from steadynet.plugins import settings_of
    from steadynet.training.grafting import GraftSettings

    add_new_run(parser, "grafted")
    add_settings(parser, GRAFTING, "settings of grafting", settings_of(GraftSettings))


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.numbers import count_of
    from steadynet.plugins import make
    from steadynet.runs.trained import load_trained
    from steadynet.training.grafting import GraftSettings, graft_run

    use_threads(arguments)
    trained = load_trained(arguments.run)
    out = arguments.out or f"{trained.run.path}-grafted"
    settings = make(GraftSettings, given_settings(arguments, GRAFTING))
    with observing_unless_json(arguments) as observer:
        result = graft_run(trained, out, settings, judge=judge_of(arguments), observer=observer)
    lines = f"grafted: ReLUs {count_of(result.lines.relus, result.lines.all_relus)}"
    show_change(arguments, result, f"{trained.run.path}, grafted", lines, out)


COMMAND = Command(
    summary="replace the most unstable ReLUs by lines and fine-tune",
    description=(
        "Replace the most unstable ReLUs of a trained network by lines a·x + b, which makes it easier to verify, and "
        "fine-tune it with the method of its run (linearity grafting). "
        "The result is a new run; the old one stays as it is. "
        "If you stop it, steadynet train --resume --out RUN continues the fine-tuning."
    ),
    usage="RUN [--out RUN] [--share SHARE] [--epochs N] [options]",
    examples=(
        "steadynet graft runs/first --epochs 10                       # writes runs/first-grafted",
        "steadynet graft runs/first --share 0.2 --epochs 10 --out runs/straighter",
    ),
    configure=_configure,
    run=_run,
)
