"""Checking a folder of proofs from within steadynet, with ``steadycheck``'s own functions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steadycheck import Refused, check, read_network


@dataclass(frozen=True)
class CheckedFolder:
    """How many proofs a folder holds, how many of them are valid, and why the others are refused."""

    total: int
    valid: int
    refused: dict[str, str]


def check_folder(folder: Path) -> CheckedFolder:
    """Check every proof of a folder."""
    proofs, refused = sorted(folder.glob("*.proof")), {}
    network = read_network((folder / "model.onnx").read_bytes()) if proofs else None
    for proof in proofs:
        assert network is not None
        try:
            check(network, proof.with_suffix(".vnnlib").read_bytes(), proof.read_bytes())
        except (Refused, OSError) as error:
            refused[proof.name] = str(error)
    return CheckedFolder(len(proofs), len(proofs) - len(refused), refused)
