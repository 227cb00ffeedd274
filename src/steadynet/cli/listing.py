"""``steadynet list methods | models | data``."""

from __future__ import annotations

import argparse

from steadynet.cli.command import Command
from steadynet.cli.data import show_data_sets
from steadynet.flags import Parser


def _configure(parser: Parser) -> None:
    parser.add_argument("what", choices=["methods", "models", "data"])


def _run(arguments: argparse.Namespace) -> None:
    {"methods": _show_methods, "models": _show_models, "data": show_data_sets}[arguments.what]()


def _show_methods() -> None:
    from steadynet import objectives
    from steadynet.display import heading, table
    from steadynet.plugins import describe_value, settings_of

    for name, plugin in sorted(objectives.available().items()):
        note = " (joins any other, as in trades+nbc)" if plugin.is_regulariser else ""
        title = f"{name}: {plugin.summary}{note}"
        rows = [[entry.name, describe_value(entry.default), entry.help] for entry in settings_of(plugin)]
        if rows:
            table(title, ["setting", "default", "meaning"], rows)
        else:
            heading(title)


def _show_models() -> None:
    from steadynet.display import table
    from steadynet.networks import ARCHITECTURES

    rows = []
    for name, entry in ARCHITECTURES.items():
        weights = sum(parameter.numel() for parameter in entry.build().parameters())
        rows.append([name, entry.summary, "×".join(map(str, entry.image_shape)), f"{weights:,}"])
    table("Models", ["name", "layers", "images", "parameters"], rows, "or your own: --model file.py:factory")


COMMAND = Command("methods, models and data sets, with their settings", _configure, _run)
