"""``steadynet cross-check``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from steadynet.cli.command import Command, add_json, add_threads, use_threads
from steadynet.cli.parsing import Parser
from steadynet.cli.plugin_flags import add_verifier_settings, given_verifiers
from steadynet.cli.selection import add_selection, select
from steadynet.training.notation import written_radius

if TYPE_CHECKING:
    from steadynet.verification.cross_check import CrossCheckSummary, Evidence

DEFAULT = ("branch_and_bound", "milp")


def _configure(parser: Parser) -> None:
    add_selection(parser)
    parser.add_argument(
        "--verifiers",
        nargs="+",
        default=DEFAULT,
        metavar="NAME",
        help="the verifiers to compare, by name or as file.py:Class; steadynet list verifiers shows all "
        f"(default: {' '.join(DEFAULT)})",
    )
    add_threads(parser)
    add_json(parser)
    add_verifier_settings(parser)


def _run(arguments: argparse.Namespace) -> int:
    from steadynet.cli.display.terminal import progress_bar
    from steadynet.verification.cross_check import CrossCheck
    from steadynet.verification.verifiers import make_verifier

    settings = given_verifiers(arguments, arguments.verifiers)
    verifiers = [make_verifier(name, given) for name, given in settings.items()]  # reports a missing tool at once
    use_threads(arguments)
    chosen = select(arguments)
    check = CrossCheck(chosen.trained, chosen.dataset.test, chosen.index, chosen.radii, verifiers, chosen.data)
    with progress_bar() as progress:
        task = progress.add_task("verifying", total=len(check), note="")
        check.decide(lambda name: progress.update(task, advance=1, description=f"verifying by {name}"))
        result = check.summary()
    if arguments.json:
        sys.stdout.write(json.dumps(result.to_json(), indent=2) + "\n")
    else:
        _show(result)
    return 1 if result.contradictions else 0


def _show(result: CrossCheckSummary) -> None:
    from steadynet.cli.display.numbers import seconds
    from steadynet.cli.display.tables import table
    from steadynet.cli.display.terminal import console
    from steadynet.verification.guarantees import count_guarantees, describe_proofs
    from steadynet.verification.properties import Verdict

    names = list(result.verifiers)
    rows = [
        [written_radius(row.eps), str(row.index), str(row.label)]
        + [f"{row.results[name].verdict.value} {seconds(row.results[name].seconds)}" for name in names]
        for row in result.properties
    ]
    totals = [result.totals[name] for name in names]
    for verdict in Verdict:
        counts = [total.count(verdict) for total in totals]
        if any(counts):
            rows.append([f"total {verdict.value}", "", "", *map(str, counts)])
    rows.append(["total time", "", "", *(seconds(total.seconds) for total in totals)])
    table(f"{result.run}: {len(result.properties)} properties", ["ε", "image", "label", *names], rows)
    for name in names:
        if proofs := describe_proofs(count_guarantees(row.results[name] for row in result.properties)):
            console.print(f"{name}: {proofs}", soft_wrap=True, markup=False)
        for reason in dict.fromkeys(row.results[name].reason for row in result.properties):
            if reason:
                console.print(f"{name}: {reason}", soft_wrap=True, markup=False)
    for found in result.contradictions:
        console.print(_contradiction(found), soft_wrap=True, markup=False)
    if not result.contradictions:
        console.print("no contradiction")


def _contradiction(found: Evidence) -> str:
    proved, refuted = " and ".join(found.proved_by), " and ".join(found.refuted_by)
    judgement = f"it replays, so {proved} is wrong" if found.wrong else "it replays only to within rounding"
    return (
        f"CONTRADICTION on image {found.index} at ε {written_radius(found.eps)}: {proved} says unsat, but {refuted} "
        f"has a counterexample: {judgement}. Evidence: {found.evidence}"
    )


COMMAND = Command(
    summary="compare the verdicts of several verifiers",
    description=(
        "Put the same properties of a trained network through several verifiers and compare their verdicts and times. "
        "If one refutes what another proves, the evidence is kept in the run directory and the exit code is 1."
    ),
    usage="NETWORK [--verifiers NAME ...] [--eps RADIUS ...] [--per-class N] [options]",
    examples=(
        "steadynet cross-check runs/first --eps 0.05 --per-class 1",
        "steadynet cross-check runs/first --verifiers branch_and_bound milp --eps 0.05 --per-class 1 --timeout 60",
    ),
    configure=_configure,
    run=_run,
)
