"""``steadynet list``: the names that the commands know, with what they mean."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from steadynet.cli.command import Command
from steadynet.cli.data import show_data_sets
from steadynet.cli.parsing import Parser
from steadynet.plugins import choose


def _configure(parser: Parser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        metavar="|".join(KINDS),
        help="one kind of thing, with all settings (default: everything, one line each)",
    )


def _run(arguments: argparse.Namespace) -> None:
    if arguments.what is None:
        _show_everything()
    else:
        choose("kind of thing", arguments.what, KINDS)()


def _show_everything() -> None:
    from steadynet import data, objectives
    from steadynet.cli.display.tables import table
    from steadynet.cli.display.terminal import console
    from steadynet.experiments import engines
    from steadynet.networks import ARCHITECTURES
    from steadynet.verification import verifiers

    lists = {
        "Methods, for train --method": _summaries(objectives.available()),
        "Models, for train --model": [[name, entry.summary] for name, entry in ARCHITECTURES.items()],
        "Data sets, for train --data": _summaries(data.available()),
        "Verifiers, for verify --verifier": _summaries(verifiers.available()),
        "Experiments, for reproduce": _titles(),
        "Engines, for reproduce --engine": _summaries(engines.available()),
    }
    for title, rows in lists.items():
        table(title, ["name", "what it is"], rows)
    console.print(f"\nWith all settings: steadynet list {'|'.join(KINDS)}", soft_wrap=True)


def _summaries(plugins: dict[str, type]) -> list[list[str]]:
    return [[name, getattr(plugin, "summary", "")] for name, plugin in sorted(plugins.items())]


def _titles() -> list[list[str]]:
    from steadynet.experiments.grid import names, read_grid

    return [[name, read_grid(name).title] for name in names()]


def _show_methods() -> None:
    from steadynet import objectives

    for name, plugin in sorted(objectives.available().items()):
        note = " (joins any other method, as in trades+nbc)" if plugin.is_regulariser else ""
        _show_plugin(f"{name}: {plugin.summary}{note}", plugin)


def _show_verifiers() -> None:
    from steadynet.verification import verifiers

    for name, plugin in sorted(verifiers.available().items()):
        _show_plugin(f"{name}: {plugin.summary}", plugin)


def _show_engines() -> None:
    from steadynet.experiments import engines

    for name, plugin in sorted(engines.available().items()):
        _show_plugin(f"{name}: {plugin.summary}", plugin)


def _show_plugin(title: str, plugin: type) -> None:
    from steadynet.cli.display.tables import heading, table
    from steadynet.plugins import describe_value, settings_of

    rows = [[entry.name, describe_value(entry.default), entry.help] for entry in settings_of(plugin)]
    if rows:
        table(title, ["setting", "default", "meaning"], rows)
    else:
        heading(title)


def _show_models() -> None:
    from steadynet.cli.display.tables import table
    from steadynet.networks import ARCHITECTURES

    rows = []
    for name, entry in ARCHITECTURES.items():
        weights = sum(parameter.numel() for parameter in entry.build().parameters())
        rows.append([name, entry.summary, "×".join(map(str, entry.image_shape)), f"{weights:,}"])
    note = "To use a network of your own: --model file.py:factory, a function that returns an nn.Module."
    table("Models", ["name", "layers", "images", "parameters"], rows, note)


def _show_experiments() -> None:
    from steadynet.cli.display.tables import table

    note = "To run a grid of your own: steadynet reproduce FILE.toml"
    table("Experiments", ["name", "table"], _titles(), note)


KINDS: dict[str, Callable[[], None]] = {
    "methods": _show_methods,
    "models": _show_models,
    "data": show_data_sets,
    "verifiers": _show_verifiers,
    "experiments": _show_experiments,
    "engines": _show_engines,
}

COMMAND = Command(
    summary="list methods, models, data sets, verifiers and experiments",
    description="List the names that the other commands know: everything briefly, or one kind with all settings.",
    usage=f"[{'|'.join(KINDS)}]",
    examples=(
        "steadynet list            # everything, one line each",
        "steadynet list methods    # the training methods with their settings",
    ),
    configure=_configure,
    run=_run,
)
