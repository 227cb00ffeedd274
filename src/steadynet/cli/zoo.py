"""``steadynet zoo list`` and ``zoo get``."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser
from steadynet.errors import UnknownNameError, UserError

ACTIONS = ("list", "get")


def _configure(parser: Parser) -> None:
    parser.add_argument(
        "action", metavar="|".join(ACTIONS), help="list: show the published networks; get: copy one of them"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the network to copy")
    parser.add_argument("--out", metavar="DIR", help="the run directory to write (default: runs/NAME)")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="DIR",
        help="the folder of the published results (default: results, here or where steadynet's source is)",
    )


def _run(arguments: argparse.Namespace) -> None:
    if arguments.action not in ACTIONS:
        raise UnknownNameError("action", arguments.action, ACTIONS)
    from steadynet.experiments.zoo import find_results

    results = find_results(Path(arguments.source) if arguments.source else None)
    if arguments.action == "get":
        _get(results, arguments.name, arguments.out)
    elif arguments.name or arguments.out:
        raise UserError(f"zoo list takes no names: did you mean steadynet zoo get {arguments.name or 'NAME'}?")
    else:
        _list(results)


def _list(results: Path) -> None:
    from steadynet.cli.display.tables import table
    from steadynet.experiments.zoo import networks_in
    from steadynet.report.metrics import radius

    rows = []
    for name, network in networks_in(results).items():
        accuracy = "–" if network.accuracy is None else f"{100 * network.accuracy:.1f} %"
        radii, counts = [radius(eps) for eps in network.proved], network.proved.values()
        total = " and ".join(dict.fromkeys(str(total) for _, total in counts))
        proved = " ".join(str(count) for count, _ in counts)
        rows.append([name, accuracy, _joined(radii), proved, total])
    if not rows:
        raise UserError(f"{results} holds no networks with weights yet")
    table("Published networks", ["name", "accuracy", "ε", "proved", "of"], rows, "steadynet zoo get NAME")


def _joined(radii: Sequence[str]) -> str:
    """The radii in one short line: ``2 4 8/255`` instead of ``2/255 4/255 8/255``."""
    parts = [radius.partition("/") for radius in radii]
    if len({below for _, _, below in parts}) > 1 or not parts[0][2]:
        return " ".join(radii)
    return f"{' '.join(above for above, _, _ in parts)}/{parts[0][2]}"


def _get(results: Path, name: str | None, out: str | None) -> None:
    from steadynet.cli.display.terminal import console
    from steadynet.experiments.zoo import get_network, networks_in
    from steadynet.report.metrics import radius

    if name is None:
        raise UserError(f"name the network to copy: {', '.join(networks_in(results)) or 'there is none yet'}")
    run = get_network(results, name, Path(out or Path("runs") / name))
    config, folder = run.read_config(), shlex.quote(str(run.path))
    smallest = min(networks_in(results)[name].cell.radii)
    console.print(f"written: {run.path}: {config.model} on {config.data}, trained by {config.method}", soft_wrap=True)
    console.print(f"next:    steadynet verify {folder} --eps {radius(smallest)}", soft_wrap=True)


COMMAND = Command(
    summary="list or copy published networks",
    description=(
        "List the networks that are published with their weights, or copy one into a run directory, to verify, "
        "evaluate or fine-tune it. They are in the folder results/ of steadynet's repository."
    ),
    usage="list|get [NAME] [--out DIR] [--from DIR]",
    examples=(
        "steadynet zoo list                          # names, accuracies and proofs",
        "steadynet zoo get mnist-m1-nbc              # then: steadynet verify runs/mnist-m1-nbc --eps 0.1",
    ),
    configure=_configure,
    run=_run,
)
