"""``steadynet view``."""

from __future__ import annotations

import argparse
from pathlib import Path

from steadynet.cli.command import Command, add_pictures, add_runs, positive_integer
from steadynet.cli.parsing import Parser
from steadynet.errors import UserError


def _configure(parser: Parser) -> None:
    add_runs(parser)
    parser.add_argument(
        "--port", type=positive_integer, default=8765, metavar="N", help="port on this machine (default: 8765)"
    )
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    add_pictures(parser)


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console
    from steadynet.report.serve import HOST, make_server

    if arguments.port > 65535:
        raise UserError(f"--port {arguments.port} is too large: the largest port is 65535")
    with make_server([Path(run) for run in arguments.runs], arguments.port, arguments.pictures) as server:
        address = f"http://{HOST}:{server.server_port}/"
        console.print(f"The report is at {address} and follows its files. Stop it with Ctrl-C.", soft_wrap=True)
        if arguments.open:
            import webbrowser

            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print("stopped")


COMMAND = Command(
    summary="show the report in the browser and keep it up to date",
    description="Serve the report of runs and experiments on this machine, and refresh it while they run.",
    usage="RUNS [RUNS ...] [--port N] [--open] [options]",
    examples=("steadynet view runs/first --open",),
    configure=_configure,
    run=_run,
)
