"""``steadynet data list``, ``data fetch`` and ``data where``."""

from __future__ import annotations

import argparse

from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser
from steadynet.errors import UnknownNameError, UserError

ACTIONS = ("list", "fetch", "where")


def _configure(parser: Parser) -> None:
    parser.add_argument(
        "action",
        metavar="|".join(ACTIONS),
        help="list: show all data sets; fetch: download those named; where: print the folder where they are stored",
    )
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help="the data sets to fetch")


def _run(arguments: argparse.Namespace) -> None:
    if arguments.action not in ACTIONS:
        raise UnknownNameError("action", arguments.action, ACTIONS)
    if arguments.action == "fetch":
        _fetch(arguments.names)
    elif arguments.names:
        names = " ".join(arguments.names)
        raise UserError(f"data {arguments.action} takes no names: did you mean steadynet data fetch {names}?")
    elif arguments.action == "list":
        show_data_sets()
    else:
        _show_where()


def show_data_sets() -> None:
    """Print a table of the data sets that have a name."""
    from steadynet import data
    from steadynet.cli.display.tables import table

    rows = [
        [name, "yes" if plugin().is_available() else "no", plugin.summary, plugin.licence]
        for name, plugin in sorted(data.available().items())
    ]
    table(
        "Data sets",
        ["name", "on this machine", "what it is", "licence"],
        rows,
        "To use images of your own: --data path.npz, with the arrays X (images) and y (labels).",
    )


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
        raise UserError(f"name the data sets to fetch: {', '.join(sorted(known))}")
    failures = []
    for plugin in [choose("data set", name, known) for name in names]:
        try:
            console.print(f"{plugin.name}: {plugin().fetch()}", soft_wrap=True)
        except UserError as failure:
            failures.append(str(failure))
    if failures:
        raise UserError("\n".join(failures))


COMMAND = Command(
    summary="list, download or locate data sets",
    description="List the data sets, download some of them, or print the folder where they are stored.",
    usage="list|fetch|where [NAME ...]",
    examples=(
        "steadynet data list                   # which data sets there are, and which are on this machine",
        "steadynet data fetch mnist cifar10    # download these two",
    ),
    configure=_configure,
    run=_run,
)
