"""``steadynet list methods | models | verifiers | data``."""

from __future__ import annotations

import argparse

from steadynet.cli.command import Command
from steadynet.cli.data import show_data_sets
from steadynet.cli.parsing import Parser


def _configure(parser: Parser) -> None:
    parser.add_argument("what", choices=["methods", "models", "verifiers", "data"])


def _run(arguments: argparse.Namespace) -> None:
    show = {"methods": _show_methods, "models": _show_models, "verifiers": _show_verifiers, "data": show_data_sets}
    show[arguments.what]()


def _show_methods() -> None:
    from steadynet import objectives

    for name, plugin in sorted(objectives.available().items()):
        note = " (joins any other, as in trades+nbc)" if plugin.is_regulariser else ""
        _show_plugin(f"{name}: {plugin.summary}{note}", plugin)


def _show_verifiers() -> None:
    from steadynet.verification import verifiers

    for name, plugin in sorted(verifiers.available().items()):
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
    table("Models", ["name", "layers", "images", "parameters"], rows, "or your own: --model file.py:factory")


COMMAND = Command("methods, models, verifiers and data sets, with their settings", _configure, _run)
