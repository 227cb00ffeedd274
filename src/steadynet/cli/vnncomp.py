"""``steadynet vnncomp``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from steadynet.cli.command import Command, count
from steadynet.cli.parsing import Parser, given_settings
from steadynet.cli.plugin_flags import VERIFIER, add_verifier_settings
from steadynet.errors import UserError
from steadynet.training.interruption import InterruptedByUserError

TIMEOUT = 120.0  # seconds


def _configure(parser: Parser) -> None:
    parser.add_argument("network", nargs="?", metavar="ONNX", help="a network")
    parser.add_argument("property", nargs="?", metavar="VNNLIB", help="a property of it, VNN-LIB 1.0 or 2.0 (or .gz)")
    parser.add_argument("--instances", metavar="FILE", help="a list of network,property,seconds instead")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="seconds, reading included [120; the list's]")
    parser.add_argument("--out", metavar="FILE", help="the result [printed], or the table of results [results.csv]")
    parser.add_argument("--verifier", default="branch_and_bound", metavar="NAME", help="who decides [branch_and_bound]")
    parser.add_argument("--threads", type=count, metavar="N", help="CPU threads")
    add_verifier_settings(parser, without=("timeout",))


def _run(arguments: argparse.Namespace) -> None:
    import torch

    from steadynet.verification.verify import make_verifier

    settings = given_settings(arguments, VERIFIER)
    make_verifier(arguments.verifier, settings)  # what is misspelt is told before anything is read
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    if arguments.timeout is not None and not 0 < arguments.timeout < float("inf"):
        raise UserError(f"--timeout {arguments.timeout:g} must be larger than 0")
    if arguments.instances:
        if arguments.network:
            raise UserError("give either ONNX and VNNLIB, or --instances, not both")
        _run_list(arguments, settings)
    elif arguments.network and arguments.property:
        instance = Path(arguments.network), Path(arguments.property), arguments.timeout or TIMEOUT
        decide_one(*instance, arguments.verifier, settings, arguments.out)
    else:
        raise UserError("give a network and a property (ONNX VNNLIB), or a list of them (--instances FILE)")


def decide_one(
    network: Path, property_file: Path, timeout: float, verifier: str, settings: dict[str, Any], out: str | None = None
) -> None:
    """Decide one instance; the result in the competition's form into a file, else printed."""
    from steadynet.cli.display.tables import seconds
    from steadynet.cli.display.terminal import console, messages
    from steadynet.files import write_text
    from steadynet.verification.vnncomp import Instance, decide

    result = decide(Instance(network, property_file, timeout), verifier, **settings)
    notes = ", ".join(text for text in (result.decided_by, result.reason) if text)
    line = f"{result.verdict.value} in {seconds(result.seconds)}" + (f" ({notes})" if notes else "")
    if out:
        write_text(Path(out), result.text())
        console.print(f"{line}; written: {out}", soft_wrap=True, markup=False)
    else:
        sys.stdout.write(result.text())
        messages.print(line, soft_wrap=True, markup=False)


def _run_list(arguments: argparse.Namespace, settings: dict[str, Any]) -> None:
    import dataclasses

    from steadynet.cli.display.tables import seconds, table
    from steadynet.cli.display.terminal import console, progress_bar
    from steadynet.verification.instances import InstanceRow, ResultTable, read_instances, run_instances

    listed = read_instances(Path(arguments.instances))
    if arguments.timeout:
        listed = [
            dataclasses.replace(each, instance=dataclasses.replace(each.instance, timeout=arguments.timeout))
            for each in listed
        ]
    results, found = ResultTable(Path(arguments.out or "results.csv")), Counter[str]()
    try:
        with progress_bar() as progress:
            task = progress.add_task("instances", total=len(listed), note="")

            def follow(row: InstanceRow) -> None:
                found[row.verdict.value] += 1
                note = "  ".join(f"{verdict} {number}" for verdict, number in found.items())
                progress.update(task, advance=1, note=note)

            rows = run_instances(listed, results, arguments.verifier, settings, follow)
    except KeyboardInterrupt as stop:
        raise InterruptedByUserError(
            f"stopped: {sum(found.values())} of {len(listed)} instances are decided; the same command goes on"
        ) from stop
    columns = ("network", "property", "verdict", "seconds", "decided by")
    cells = [
        (_name(row.network_name), _name(row.property_name), row.verdict.value, seconds(row.seconds),
         row.reason or row.decided_by)
        for row in rows
    ]  # fmt: skip
    counts = ", ".join(f"{number} {verdict}" for verdict, number in found.most_common())
    table(f"{arguments.instances}: {counts}", columns, cells)
    console.print(f"written: {results.path}", soft_wrap=True, markup=False)


def _name(file: str) -> str:
    return Path(file).name.removesuffix(".gz").removesuffix(".vnnlib").removesuffix(".onnx")


COMMAND = Command("decide other tools' networks and properties (ONNX, VNN-LIB)", _configure, _run)
