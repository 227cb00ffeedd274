"""The proofs of a run, checked again: which of its verdicts have one that ``steadycheck`` accepts."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from steadynet.data import Images
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.robustness import format_robustness
from steadynet.runs.trained import TrainedNetwork
from steadynet.verification.proofs.folder import has_steadycheck
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.verdicts import Row

Place = tuple[float, int]  # the radius and the position of an image


@dataclass(frozen=True)
class StoredProof:
    """The proof of one verdict.

    Attributes:
        sha256: The hash of its file.
        arithmetic: What ``steadycheck`` says that it holds for; empty if it does not accept the proof.
        checker: The checker and its version; empty if it is not installed.
        problem: Why the proof does not count; empty if it was checked.
    """

    sha256: str
    arithmetic: str = ""
    checker: str = ""
    problem: str = ""

    @property
    def is_checked(self) -> bool:
        """Whether ``steadycheck`` was run just now, and accepted the proof."""
        return not self.problem

    def described(self) -> str:
        """What is known of it, in words."""
        if self.problem:
            return f"there is a proof, but it does not count: {self.problem}"
        return f"checked by {self.checker} for {self.arithmetic} (SHA-256 {self.sha256[:16]}…)"


def proofs_of(trained: TrainedNetwork, test: Images, rows: Sequence[Row]) -> dict[Place, StoredProof]:
    """Check the proofs of a run's proved properties.

    A proof belongs to a property if its VNN-LIB file says exactly the same, and it counts only if its network is the
    run's network as it is now, bit by bit, and ``steadycheck`` accepts it.

    Args:
        trained: The run.
        test: The images that the rows speak of.
        rows: Verdicts in ε-boxes.

    Returns:
        What is known of each proof, by radius and image. A verdict without a proof is not there.
    """
    folder = trained.run.proofs
    files = {path.with_suffix(".vnnlib").name: path for path in sorted(folder.glob("*.proof"))}
    texts = {(folder / name).read_bytes(): proof for name, proof in files.items() if (folder / name).is_file()}
    found = {place: texts[text] for place, text in _properties(trained, test, rows) if text in texts} if texts else {}
    return _checked(trained, found)


def _properties(trained: TrainedNetwork, test: Images, rows: Sequence[Row]) -> Iterator[tuple[Place, bytes]]:
    """The proved properties of some rows as VNN-LIB text."""
    for row in rows:
        if row.verdict is Verdict.UNSAT and row.index < len(test):
            place = torch.tensor([row.index])
            asked = Properties.around(trained.network, test.pixels(place), test.labels[place], row.eps)
            classes = trained.config.input.classes
            text = format_robustness(asked.region.lower, asked.region.upper, row.label, classes)
            yield (row.eps, row.index), text.encode()


def _checked(trained: TrainedNetwork, proofs: dict[Place, Path]) -> dict[Place, StoredProof]:
    hashes = {place: hashlib.sha256(path.read_bytes()).hexdigest() for place, path in proofs.items()}
    if not proofs:
        return {}
    if not has_steadycheck():
        return {place: StoredProof(sha256, problem="steadycheck is not installed") for place, sha256 in hashes.items()}
    from steadycheck import VERSION, Refused, check, read_network

    content = (trained.run.proofs / "model.onnx").read_bytes()
    if content != _exported(trained):
        return {place: StoredProof(sha256, problem="it is of another network") for place, sha256 in hashes.items()}
    network, found = read_network(content), {}
    for place, path in proofs.items():
        try:
            proved = check(network, path.with_suffix(".vnnlib").read_bytes(), path.read_bytes())
            found[place] = StoredProof(hashes[place], proved.arithmetic, f"steadycheck {VERSION}")
        except Refused as error:
            found[place] = StoredProof(hashes[place], problem=f"steadycheck says: {error}")
    return found


def _exported(trained: TrainedNetwork) -> bytes:
    """The run's network as ONNX, as ``verify --proofs`` exports it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export_onnx(trained.network, trained.config.input.image_shape, path)
        return path.read_bytes()
