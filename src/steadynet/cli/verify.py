"""``steadynet verify``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steadynet.cli.command import Command, add_device, add_json, add_threads, use_threads
from steadynet.cli.parsing import Parser
from steadynet.cli.plugin_flags import add_verifier, add_verifier_settings, given_verifier
from steadynet.cli.region_verification import add_regions, verify_regions, wants_region
from steadynet.cli.selection import add_selection, select
from steadynet.cli.vnncomp import TIMEOUT, decide_one
from steadynet.errors import UserError
from steadynet.training.interruption import InterruptedByUserError

if TYPE_CHECKING:
    from steadynet.verification.run import RunVerification

PGD_STEPS = 100


def _configure(parser: Parser) -> None:
    add_selection(parser)
    add_verifier(parser)
    add_threads(parser)
    add_device(parser, "compute")
    parser.add_argument(
        "--fresh", action="store_true", help="decide every property again, also those with a stored verdict"
    )
    parser.add_argument(
        "--proofs",
        action="store_true",
        help="write a proof of every proved property into the run's folder proofs/, which steadycheck checks",
    )
    parser.add_argument(
        "--from-proofs",
        metavar="FOLDER",
        help="begin with the proofs in this folder, or of this run, of a similar network: before fine-tuning, "
        "pruning or rounding",
    )
    add_json(parser)
    parser.add_argument(
        "--network",
        metavar="NAME=ONNX",
        help="verify this ONNX network instead; then NETWORK is a VNN-LIB file with the property",
    )
    add_regions(parser)
    add_verifier_settings(parser)


def _run(arguments: argparse.Namespace) -> None:
    of_a_file = arguments.network or arguments.run.endswith((".vnnlib", ".vnnlib.gz"))
    if arguments.proofs and (of_a_file or wants_region(arguments)):
        raise UserError(
            "--proofs is for ε-boxes around test images; for a VNN-LIB file: steadynet vnncomp --proofs FOLDER"
        )
    if of_a_file:
        _verify_property_file(arguments)
    elif wants_region(arguments):
        verify_regions(arguments)
    else:
        _verify_run(arguments)


def _verify_run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console, progress_bar
    from steadynet.cli.display.verification import follow_verification, show_verification
    from steadynet.verification.proofs.earlier import EarlierProofs
    from steadynet.verification.verifiers.branch_and_bound import BranchAndBound

    verification = _verification(arguments)
    try:
        with progress_bar() as progress:
            verification.decide(arguments.fresh, follow_verification(progress, verification))
            result = verification.summary(PGD_STEPS)
    except KeyboardInterrupt as stop:
        raise InterruptedByUserError(
            f"stopped: {len(verification.rows)} of {len(verification)} properties are decided and saved. "
            f"Continue with: {_continuation(arguments)}"
        ) from stop
    if arguments.json:
        sys.stdout.write(json.dumps(result.to_json(), indent=2) + "\n")
    else:
        show_verification(result)
        if isinstance(verification.verifier, BranchAndBound) and isinstance(
            verification.verifier.earlier, EarlierProofs
        ):
            console.print(verification.verifier.earlier.described(), soft_wrap=True, markup=False)
        if verification.proofs is not None:
            proved = sum(radius.verdicts.unsat for radius in result.radii)
            console.print(verification.proofs.described(proved), soft_wrap=True, markup=False)
        console.print(f"written: {verification.run.verdicts}", soft_wrap=True)


def _verify_property_file(arguments: argparse.Namespace) -> None:
    """Decide one property of an ONNX network, in the form that the VNN-LIB 2.0 standard proposes.

    That form is ``verify PROPERTY --network NAME=ONNX --timeout SECONDS``.
    """
    import torch

    from steadynet.verification.vnncomp import Instance

    if not arguments.network or "=" not in arguments.network:
        raise UserError(f"{arguments.run} is a property: name its network with --network NAME=FILE.onnx")
    if arguments.device != "cpu":
        raise UserError(f"--device {arguments.device} works only for runs: ONNX networks are verified on the CPU")
    use_threads(arguments)
    torch.manual_seed(0)
    settings = given_verifier(arguments)
    timeout = settings.pop("timeout", TIMEOUT)
    if not 0 < timeout < float("inf"):
        raise UserError(f"--timeout {timeout:g} must be larger than 0")
    instance = Instance(Path(arguments.network.partition("=")[2]), Path(arguments.run), timeout)
    decide_one(instance, arguments.verifier, settings)


def _verification(arguments: argparse.Namespace) -> RunVerification:
    import torch

    from steadynet.devices import DEVICES, pick_device
    from steadynet.verification.proofs.earlier import EarlierProofs, beginning_with
    from steadynet.verification.proofs.folder import ProofFolder, require_steadycheck
    from steadynet.verification.run import RunVerification
    from steadynet.verification.verifiers import make_verifier

    if arguments.proofs:
        require_steadycheck()
    verifier = make_verifier(arguments.verifier, given_verifier(arguments))
    device = pick_device(arguments.device, DEVICES)
    use_threads(arguments)
    chosen = select(arguments)
    if arguments.from_proofs:
        verifier = beginning_with(verifier, EarlierProofs(Path(arguments.from_proofs)))
    torch.manual_seed(0)
    proofs = ProofFolder(chosen.trained.run.proofs) if arguments.proofs else None
    return RunVerification(
        chosen.trained, chosen.dataset.test, chosen.index, chosen.radii, verifier, chosen.data, device, proofs
    )


def _continuation(arguments: argparse.Namespace) -> str:
    """Return the command that continues a stopped verification: what the user typed, without ``--fresh``."""
    return shlex.join(["steadynet", *(word for word in arguments.words if word != "--fresh")])


COMMAND = Command(
    summary="prove or refute robustness around test images",
    description=(
        "For each test image and radius ε, prove that the network gives every image within ε the right label, or find "
        "one that it gets wrong (a counterexample). Verdicts and counterexamples are written into the run directory. "
        "If you stop it, run the same command again to continue."
    ),
    usage="NETWORK [--eps RADIUS ...] [--per-class N] [--timeout SECONDS] [options]",
    examples=(
        "steadynet verify runs/first --eps 0.1 --timeout 10",
        "steadynet verify runs/first --eps 0.05 0.1 --per-class 2 --verifier milp    # another verifier",
        "steadynet verify net.onnx --data images.npz --eps 2/255                     # a network from elsewhere",
    ),
    configure=_configure,
    run=_run,
)
