"""``steadynet view``."""

from __future__ import annotations

import argparse
from pathlib import Path

from steadynet.cli.command import Command, count
from steadynet.cli.parsing import Parser
from steadynet.errors import UserError


def _configure(parser: Parser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="run directories, experiments, or folders of them")
    parser.add_argument("--port", type=count, default=8765, metavar="N", help="port on this machine [8765]")
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    parser.add_argument(
        "--pictures", type=count, default=5000, metavar="N", help="counterexamples drawn at most [5000]"
    )


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console
    from steadynet.report.serve import HOST, make_server

    if arguments.port > 65535:
        raise UserError(f"--port {arguments.port} must be at most 65535")
    with make_server([Path(run) for run in arguments.runs], arguments.port, arguments.pictures) as server:
        address = f"http://{HOST}:{server.server_port}/"
        console.print(f"{address} shows the report and follows its files; Ctrl-C ends it", soft_wrap=True)
        if arguments.open:
            import webbrowser

            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print("ended")


COMMAND = Command("serve the report on this machine, and refresh it while a grid runs", _configure, _run)
