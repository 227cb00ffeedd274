"""``steadynet demo``: the idea of the project in a few minutes, on embedded data.

The same network is trained twice, without and with NBC. The demo then shows what can be proved of each. A demo that was
stopped goes on where it was: what its folder holds already is not computed again.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from steadynet.cli.command import Command, add_threads, positive_integer, use_threads
from steadynet.cli.parsing import Parser

if TYPE_CHECKING:
    from steadynet.runs.directory import RunDirectory
    from steadynet.runs.evaluation import Evaluation
    from steadynet.runs.trained import TrainedNetwork
    from steadynet.training.settings import TrainingSettings
    from steadynet.verification.summary import VerdictSummary

TITLES = {"natural": "trained without NBC (natural)", "nbc": "trained with NBC (nbc)"}
METHODS = tuple(TITLES)
TRAINING = {"data": "digits", "model": "M1", "eps": 0.3, "lr": 2e-3, "schedule": "one-cycle"}
RADII, PGD_STEPS = (0.1, 0.2, 0.3), 20
PROVED_RADIUS, PER_CLASS, TIMEOUT = 0.1, 5, 2.0


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured of one network."""

    evaluation: Evaluation
    verified: VerdictSummary


def _configure(parser: Parser) -> None:
    parser.add_argument("--out", default="demo", metavar="DIR", help="the folder to write (default: demo)")
    parser.add_argument(
        "--epochs", type=positive_integer, default=30, metavar="N", help="epochs of each training (default: 30)"
    )
    add_threads(parser)


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.training.interruption import InterruptedByUserError

    use_threads(arguments)
    out = Path(arguments.out)
    try:
        results = {method: _train_and_measure(method, out / method, arguments) for method in METHODS}
        _show(results, out)
        _write_page(out)
        _check_proofs(out)
    except (InterruptedByUserError, KeyboardInterrupt) as stop:
        command = shlex.join(["steadynet", *arguments.words])
        raise InterruptedByUserError(f"stopped: everything so far is saved. Continue with: {command}") from stop


def _train_and_measure(method: str, path: Path, arguments: argparse.Namespace) -> DemoResult:
    """Train one network into ``path``, evaluate it and verify it."""
    from steadynet.cli.display.terminal import console
    from steadynet.runs.directory import RunDirectory
    from steadynet.runs.trained import load_trained
    from steadynet.training.settings import resolve

    console.print(f"\nNetwork {METHODS.index(method) + 1} of {len(METHODS)}: {TITLES[method]}")
    settings = resolve({**TRAINING, "method": method, "epochs": arguments.epochs})
    trained = load_trained(_trained_run(RunDirectory(path), replace(settings, threads=arguments.threads)).path)
    return DemoResult(_evaluation(trained), _verify(trained))


def _trained_run(run: RunDirectory, settings: TrainingSettings) -> RunDirectory:
    """Train a network, go on with a training that was stopped, or take the one that is there."""
    from steadynet.cli.display.terminal import console
    from steadynet.cli.display.training import TrainingDisplay
    from steadynet.training.loop import resume, train

    with TrainingDisplay() as display:
        if not run.is_run() or not _has_settings(run, settings):
            return train(settings, run.path, overwrite=True, observer=display)
        if run.weights.is_file():
            console.print(f"already trained: {run.path}", soft_wrap=True, markup=False)
            return run
        return resume(run.path, observer=display, threads=settings.threads)


def _has_settings(run: RunDirectory, settings: TrainingSettings) -> bool:
    """Whether a run has these settings, wherever it was computed."""
    from steadynet.training.settings import resolve

    own = replace(resolve(run.read_config().settings), device=settings.device, threads=settings.threads)
    return own.as_config() == settings.as_config()


def _evaluation(trained: TrainedNetwork) -> Evaluation:
    """Measure a network on test images, unless that was done before."""
    from steadynet.runs.evaluation import evaluate, read_evaluation, write_evaluation

    stored = read_evaluation(trained.run)
    if stored and stored.pgd_steps == PGD_STEPS and tuple(row.eps for row in stored.radii) == RADII:
        return stored
    evaluation = evaluate(trained, radii=RADII, pgd_steps=PGD_STEPS)
    write_evaluation(trained.run, evaluation)
    return evaluation


def _verify(trained: TrainedNetwork) -> VerdictSummary:
    import torch

    from steadynet.cli.display.terminal import progress_bar
    from steadynet.cli.display.verification import follow_verification
    from steadynet.verification.proofs.folder import ProofFolder, has_steadycheck
    from steadynet.verification.run import RunVerification
    from steadynet.verification.summary import summarise
    from steadynet.verification.verifiers import make_verifier

    test = trained.data().test
    images = test.first_of_each_class(PER_CLASS)
    torch.manual_seed(0)
    verifier = make_verifier("branch_and_bound", {"timeout": TIMEOUT})
    proofs = ProofFolder(trained.run.proofs) if has_steadycheck() else None
    verification = RunVerification(trained, test, images, [PROVED_RADIUS], verifier, trained.config.data, proofs=proofs)
    with progress_bar() as progress:
        verification.decide(on_row=follow_verification(progress, verification))
    return summarise(list(verification.rows.values()))


def _show(results: dict[str, DemoResult], out: Path) -> None:
    from steadynet.cli.display.tables import table
    from steadynet.cli.display.terminal import console

    table("The same network, trained twice", ["", *results], _rows(list(results.values())))
    natural, nbc = (results[method].verified for method in METHODS)
    console.print(
        f"Of the same {nbc.properties} images, {nbc.unsat} are proved robust with NBC and {natural.unsat} "
        "without it.\n"
        "Every unstable neuron doubles the work of a proof: the NBC network has few of them.\n"
        f"The runs are in {out}/; next: steadynet verify {shlex.quote(str(out / 'nbc'))} --eps 0.1 0.2 --timeout 10",
        soft_wrap=True,
    )


def _rows(results: list[DemoResult]) -> list[list[str]]:
    """Return the rows of the table: one row per figure, one column per network."""
    from steadynet.cli.display.numbers import count_of, percent, seconds
    from steadynet.verification.properties import Verdict

    evaluations = [result.evaluation for result in results]
    images = f"{evaluations[0].images:,} test images"
    rows = [[f"accuracy ({images})", *(percent(found.accuracy) for found in evaluations)]]
    for place, radius in enumerate(RADII):
        attacked = [percent(found.radii[place].pgd_accuracy) for found in evaluations]
        rows.append([f"accuracy under attack (PGD-{PGD_STEPS}) at ε {radius}", *attacked])
    for place, radius in enumerate(RADII):
        stable = [percent(found.radii[place].stable_share_ibp) for found in evaluations]
        rows.append([f"stable neurons (ibp) at ε {radius}", *stable])
    verified = [result.verified for result in results]

    def counts(verdict: Verdict) -> list[str]:
        return [count_of(found.count(verdict), found.properties) for found in verified]

    return [
        *rows,
        [f"proved robust at ε {PROVED_RADIUS}", *counts(Verdict.UNSAT)],
        ["refuted, by a counterexample", *counts(Verdict.SAT)],
        [f"not decided in {TIMEOUT:g} s", *counts(Verdict.TIMEOUT)],
        ["mean time of a verdict", *(seconds(found.time) for found in verified)],
    ]


def _write_page(out: Path) -> None:
    """Write the report of both networks and print where it is; without the optional packages, print how to get them."""
    from steadynet.cli.display.terminal import console
    from steadynet.errors import UserError
    from steadynet.report.write import write_report

    try:
        page = write_report([out / method for method in METHODS], out / "report")
    except UserError as error:
        console.print(f"No page: {error}", soft_wrap=True, markup=False)
        return
    console.print(f"See both networks, with every image and counterexample: {page}", soft_wrap=True, markup=False)


def _check_proofs(out: Path) -> None:
    """Let ``steadycheck`` check the proofs of both networks; without it, print how to get it."""
    from steadynet.cli.display.terminal import console
    from steadynet.errors import UserError
    from steadynet.verification.proofs.folder import HOW_TO_INSTALL, has_steadycheck

    if not has_steadycheck():
        console.print(f"No proofs: {HOW_TO_INSTALL}", soft_wrap=True, markup=False)
        return
    from steadynet.verification.proofs.checking import check_folder

    found = [check_folder(out / method / "proofs") for method in METHODS]
    valid, total = sum(each.valid for each in found), sum(each.total for each in found)
    if valid != total:
        raise UserError(f"steadycheck refuses {total - valid} of {total} proofs: {found}")
    console.print(
        f"steadycheck has checked the proofs, without trusting steadynet: {valid} of {total} are valid "
        f"({out}/*/proofs).",
        soft_wrap=True,
        markup=False,
    )


COMMAND = Command(
    summary="train, verify and compare two networks on built-in data",
    description=(
        "Train the same network twice on built-in data, without and with NBC, verify both and show the difference. "
        "It takes a few minutes and downloads nothing. If you stop it, run the same command again to continue."
    ),
    usage="[--out DIR] [--epochs N] [--threads N]",
    examples=(
        "steadynet demo                           # writes the runs and a report into demo/",
        "steadynet demo --epochs 5 --out quick    # a quick look, with weaker networks",
    ),
    configure=_configure,
    run=_run,
)
