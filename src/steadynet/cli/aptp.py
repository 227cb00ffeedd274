"""``steadynet aptp``."""

from __future__ import annotations

import argparse
from pathlib import Path

from steadynet.cli.command import Command
from steadynet.cli.parsing import Parser


def _configure(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a folder of proofs, or a run with one (verify --proofs)")
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder to write")


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console
    from steadynet.verification.proofs.folder import require_steadycheck

    require_steadycheck()
    from steadynet.verification.proofs.aptp import write_aptp

    written, refused = write_aptp(Path(arguments.folder), Path(arguments.out))
    console.print(f"written: {written} files in {arguments.out}", soft_wrap=True, markup=False)
    for name, reason in refused.items():
        console.print(f"not written: {name}: {reason}", soft_wrap=True, markup=False)


COMMAND = Command(
    summary="write the trees of proofs as text, in the form of APTP",
    description=(
        "Write the tree of every proof as text in the form of APTP, one file per way to violate the property, for "
        "checkers that read it. The files have the sign patterns of the leaves, but no slopes and no multipliers."
    ),
    usage="FOLDER --out DIR",
    examples=("steadynet aptp runs/first --out aptp",),
    configure=_configure,
    run=_run,
)
