"""``steadynet self-test``."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from steadynet.cli.command import Command, add_threads, positive_integer, positive_seconds, use_threads
from steadynet.cli.parsing import Parser
from steadynet.cli.plugin_flags import add_verifier, add_verifier_settings, given_verifier
from steadynet.training.interruption import InterruptedByUserError

if TYPE_CHECKING:
    from steadynet.verification.self_test.run import Judgement, SelfTestResult

EVIDENCE = "self-test-wrong"
REASONS = 6  # different reasons that are printed


def _configure(parser: Parser) -> None:
    from steadynet.verification.self_test.families import FAMILIES

    add_verifier(parser)
    parser.add_argument(
        "--networks", type=positive_integer, default=1, metavar="N", help="networks of each kind (default: 1)"
    )
    parser.add_argument(
        "--families",
        nargs="+",
        default=list(FAMILIES),
        metavar="NAME",
        help=f"the families of networks to try: {', '.join(FAMILIES)} (default: all)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the seed of the first network of each kind (default: 0)"
    )
    parser.add_argument(
        "--timeout", type=positive_seconds, default=10.0, metavar="SECONDS", help="time for each property (default: 10)"
    )
    parser.add_argument(
        "--out",
        default=EVIDENCE,
        metavar="FOLDER",
        help=f"where the network and the property of each wrong verdict are written (default: {EVIDENCE})",
    )
    parser.add_argument(
        "--record", metavar="FILE", help="write the result as JSON, for steadynet report --evidence --self-test FILE"
    )
    add_threads(parser)
    add_verifier_settings(parser, without=("timeout",))


def _run(arguments: argparse.Namespace) -> int:
    from steadynet.cli.display.terminal import progress_bar
    from steadynet.verification.self_test.known import Outcome
    from steadynet.verification.self_test.record import record_of, write_self_test
    from steadynet.verification.self_test.run import SelfTest
    from steadynet.verification.verifiers import make_verifier

    settings = given_verifier(arguments) | {"timeout": arguments.timeout}
    verifier = make_verifier(arguments.verifier, settings)  # reports a missing tool or a misspelt setting at once
    use_threads(arguments)
    test = SelfTest(arguments.verifier, settings, arguments.networks, arguments.seed, arguments.families)
    found = Counter[Outcome]()
    try:
        with progress_bar() as progress:
            task = progress.add_task(arguments.verifier, total=len(test), note="")

            def follow(judgements: list[Judgement]) -> None:
                found.update(judgement.outcome for judgement in judgements)
                note = "  ".join(f"{outcome} {found[outcome]}" for outcome in Outcome if found[outcome])
                progress.update(task, advance=1, note=note, description=f"{arguments.verifier}: {judgements[0].family}")

            result = test.run(follow, Path(arguments.out))
    except KeyboardInterrupt as stop:
        raise InterruptedByUserError(f"stopped: {sum(found.values())} properties were tried") from stop
    if arguments.record:
        write_self_test(Path(arguments.record), record_of(test, result, verifier))
    _show(result, arguments.verifier, arguments.out)
    return 1 if result.wrong() else 0


def _show(result: SelfTestResult, verifier: str, folder: str) -> None:
    from steadynet.cli.display.tables import table
    from steadynet.cli.display.terminal import console
    from steadynet.verification.self_test.known import Outcome

    total = result.total()
    rows = [
        [count.family, str(count.tried), *(str(count.of(outcome)) for outcome in Outcome)]
        for count in [*result.families(), total]
    ]
    table(f"{verifier}: {total.tried} properties whose truth is known", ["family", "tried", *Outcome], rows)
    for outcome, reason, count in result.reasons()[:REASONS]:
        console.print(f"{outcome}: {count} × {reason}", soft_wrap=True, markup=False)
    wrong = result.wrong()
    for judgement in wrong:
        console.print(f"WRONG: {judgement.describe()}", soft_wrap=True, markup=False)
    if wrong:
        console.print(f"{len(wrong)} verdicts are wrong; their networks and properties: {folder}", soft_wrap=True)
    else:
        console.print(f"{total.decided} properties decided, none of them wrong")


COMMAND = Command(
    summary="test a verifier on properties whose truth is known",
    description=(
        "Let a verifier decide properties whose truth is known by construction, and count its right and its wrong "
        "verdicts. The exit code is 1 if a verdict is wrong."
    ),
    usage="[--verifier NAME] [--networks N] [--seed N] [--timeout SECONDS] [options]",
    details="""\
the families of networks:
  spikes    a margin that is negative in one narrow place only
  trained   trained to hide a counterexample that attacks miss
  robust    properties that hold: Lipschitz bounds, and mirrored networks
  monotone  the smallest margin lies in a known corner, just above or below 0
  rounding  margins that rounding changes; judged by exact arithmetic
  readers   ONNX files that a reader could misunderstand

the table counts, for each family:
  right          a proof of a property that holds, or a counterexample that
                 replays. A proof is judged in the arithmetic that it claims.
  undecided      time-outs and "unknown": nothing is claimed
  not supported  the verifier refused the network, or failed on it
  wrong          a proof of a property that does not hold, or a counterexample
                 that does not replay""",
    examples=(
        "steadynet self-test",
        "steadynet self-test --verifier milp --families monotone rounding --networks 5",
    ),
    configure=_configure,
    run=_run,
)
