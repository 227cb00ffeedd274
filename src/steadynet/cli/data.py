"""``steadynet data list | fetch | where``."""

from __future__ import annotations

import argparse

from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser
from steadynet.errors import UserError


def _configure(parser: Parser) -> None:
    parser.add_argument("action", choices=["list", "fetch", "where"], help="what there is, fetch it, or where it lies")
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help="data sets to fetch")


def _run(arguments: argparse.Namespace) -> None:
    if arguments.action == "fetch":
        _fetch(arguments.names)
    elif arguments.names:
        raise UserError(f"data {arguments.action} takes no names: did you mean data fetch {' '.join(arguments.names)}?")
    elif arguments.action == "list":
        show_data_sets()
    else:
        _show_where()


def show_data_sets() -> None:
    """A table of the named data sets."""
    from steadynet import data
    from steadynet.cli.display.tables import table

    rows = [
        [name, "yes" if plugin().is_available() else "no", plugin.summary, plugin.licence]
        for name, plugin in sorted(data.available().items())
    ]
    table("Data sets", ["name", "here", "what it is", "licence"], rows, "or your own: --data path.npz (arrays X and y)")


def _show_where() -> None:
    from steadynet import data
    from steadynet.cli.display.terminal import console

    console.print(str(data.where()), soft_wrap=True)


def _fetch(names: list[str]) -> None:
    from steadynet import data
    from steadynet.cli.display.terminal import console
    from steadynet.plugins import choose

    known = data.available()
    if not names:
        raise UserError(f"name what to fetch: {', '.join(sorted(known))}")
    for plugin in [choose("data set", name, known) for name in names]:
        console.print(f"{plugin.name}: {plugin().fetch()}", soft_wrap=True)


COMMAND = Command("list, fetch or locate data sets", _configure, _run)
