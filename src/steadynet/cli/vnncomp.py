"""``steadynet vnncomp``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadynet.cli.command import Command, add_threads, positive_seconds, use_threads
from steadynet.cli.parsing import Parser
from steadynet.cli.plugin_flags import add_verifier, add_verifier_settings, given_verifier
from steadynet.errors import UserError
from steadynet.training.interruption import InterruptedByUserError

if TYPE_CHECKING:
    from steadynet.verification.proofs.of_instances import InstanceProofs
    from steadynet.verification.vnncomp import Instance

TIMEOUT = 120.0  # seconds


def _configure(parser: Parser) -> None:
    parser.add_argument("network", nargs="?", metavar="ONNX", help="the file of a network")
    parser.add_argument(
        "property", nargs="?", metavar="VNNLIB", help="the file of its property: VNN-LIB 1.0 or 2.0, also as .gz"
    )
    parser.add_argument(
        "--instances", metavar="FILE", help="instead of one property, a list with lines of network,property,seconds"
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        metavar="SECONDS",
        help="time for each property, reading included (default: what the list says; 120 for one property)",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="the file to write (default: results.csv for a list; one property's result is printed)",
    )
    parser.add_argument(
        "--proofs",
        metavar="FOLDER",
        help="write a proof of every proved property below this folder, which steadycheck checks",
    )
    add_verifier(parser)
    add_threads(parser)
    add_verifier_settings(parser, without=("timeout",))


def _run(arguments: argparse.Namespace) -> None:
    import torch

    from steadynet.verification.verifiers import make_verifier
    from steadynet.verification.vnncomp import Instance

    settings = given_verifier(arguments)
    make_verifier(arguments.verifier, settings)  # first, so that a misspelt setting is reported before anything is read
    use_threads(arguments)
    torch.manual_seed(0)
    if arguments.instances:
        if arguments.network:
            raise UserError("give either ONNX and VNNLIB, or --instances, not both")
        _run_list(arguments, settings)
    elif arguments.network and arguments.property:
        instance = Instance(Path(arguments.network), Path(arguments.property), arguments.timeout or TIMEOUT)
        decide_one(instance, arguments.verifier, settings, arguments.out, arguments.proofs)
    else:
        raise UserError("give a network and a property (ONNX VNNLIB), or a list of them (--instances FILE)")


def decide_one(
    instance: Instance, verifier: str, settings: dict[str, Any], out: str | None = None, proofs: str | None = None
) -> None:
    """Decide one instance and write the result in VNN-COMP's form into the file ``out``, or print it.

    A proof is written below the folder ``proofs``, if there is one.

    The line is written without :mod:`rich`, which takes longer to import than an easy instance takes to decide.
    """
    from steadynet.cli.display.numbers import seconds
    from steadynet.files import write_text
    from steadynet.verification.guarantees import describe_guarantee
    from steadynet.verification.vnncomp import decide_with_hints

    writer = _proofs(proofs)
    result = decide_with_hints(instance, verifier, settings, proofs=writer is not None)
    notes = ", ".join(text for text in (result.decided_by, result.reason, describe_guarantee(result)) if text)
    line = f"{result.verdict.value} in {seconds(result.seconds)}" + (f" ({notes})" if notes else "")
    if out:
        write_text(Path(out), result.text())
        sys.stdout.write(f"{line}; written: {out}\n")
    else:
        sys.stdout.write(result.text())
        sys.stderr.write(f"{line}\n")
    if writer is not None:
        writer.write(instance, result)
        sys.stderr.write(f"{writer.described()}\n")


def _proofs(folder: str | None) -> InstanceProofs | None:
    if folder is None:
        return None
    from steadynet.verification.proofs.of_instances import InstanceProofs

    return InstanceProofs(Path(folder))


def _run_list(arguments: argparse.Namespace, settings: dict[str, Any]) -> None:
    import dataclasses

    from steadynet.cli.display.numbers import seconds
    from steadynet.cli.display.tables import table
    from steadynet.cli.display.terminal import console, progress_bar
    from steadynet.verification.guarantees import count_guarantees, describe_proofs
    from steadynet.verification.instances import InstanceRow, ResultTable, read_instances, run_instances

    listed = read_instances(Path(arguments.instances))
    if arguments.timeout:
        listed = [
            dataclasses.replace(each, instance=dataclasses.replace(each.instance, timeout=arguments.timeout))
            for each in listed
        ]
    writer = _proofs(arguments.proofs)
    results, found = ResultTable(Path(arguments.out or "results.csv")), Counter[str]()
    try:
        with progress_bar() as progress:
            task = progress.add_task("instances", total=len(listed), note="")

            def follow(row: InstanceRow) -> None:
                found[row.verdict.value] += 1
                note = "  ".join(f"{verdict} {number}" for verdict, number in found.items())
                progress.update(task, advance=1, note=note)

            rows = run_instances(listed, results, arguments.verifier, settings, follow, writer)
    except KeyboardInterrupt as stop:
        raise InterruptedByUserError(
            f"stopped: {sum(found.values())} of {len(listed)} instances are decided. "
            "Run the same command again to continue"
        ) from stop
    columns = ("network", "property", "verdict", "time", "decided by")
    cells = [
        (_name(row.network_name), _name(row.property_name), row.verdict.value, seconds(row.seconds),
         row.reason or row.decided_by)
        for row in rows
    ]  # fmt: skip
    counts = ", ".join(f"{number} {verdict}" for verdict, number in found.most_common())
    table(f"{arguments.instances}: {counts}", columns, cells)
    if proofs := describe_proofs(count_guarantees(rows)):
        console.print(proofs, soft_wrap=True, markup=False)
    if writer is not None:
        console.print(writer.described(), soft_wrap=True, markup=False)
    console.print(f"written: {results.path}", soft_wrap=True, markup=False)


def _name(file: str) -> str:
    return Path(file).name.removesuffix(".gz").removesuffix(".vnnlib").removesuffix(".onnx")


COMMAND = Command(
    summary="decide properties of other tools' networks (ONNX, VNN-LIB)",
    description=(
        "Decide properties of ONNX networks that are written as VNN-LIB files: one property, or a list of them as "
        "VNN-COMP hands them out. If you stop it, run the same command again to continue with the list."
    ),
    usage="(ONNX VNNLIB | --instances FILE) [--out FILE] [--timeout SECONDS] [options]",
    examples=(
        "steadynet vnncomp --instances exported/instances.csv --out results.csv",
        "steadynet vnncomp exported/model.onnx exported/vnnlib/1.0/prop_3_eps_0.1.vnnlib    # one property",
    ),
    configure=_configure,
    run=_run,
)
