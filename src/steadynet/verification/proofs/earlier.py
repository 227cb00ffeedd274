"""Proofs of another network as the start of a search: ``verify --from-proofs``."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed_bounds import SplitColumns
from steadynet.bounds.refinement_by_slopes import NumberedNeurons
from steadynet.errors import UserError, one_line
from steadynet.interchange.vnnlib.robustness import format_robustness
from steadynet.verification.proofs.folder import require_steadycheck
from steadynet.verification.properties import Properties
from steadynet.verification.search.carry_over import CarryOver
from steadynet.verification.search.earlier_leaves import EarlierLeaves, EarlierProof
from steadynet.verification.verifiers import Verifier
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound

if TYPE_CHECKING:
    from steadynet.verification.proofs.reading import StoredRegion

Array = NDArray[np.float64]

CLOSE = 1e-5  # boxes whose corners differ by less are the same


def beginning_with(verifier: Verifier, earlier: EarlierProofs) -> Verifier:
    """The same verifier, whose searches begin with earlier proofs.

    Raises:
        UserError: Only steadynet's own search can begin with a proof.
    """
    if not isinstance(verifier, BranchAndBound):
        raise UserError(f"earlier proofs help branch_and_bound only: {verifier.name} cannot begin with them")
    return replace(verifier, earlier=earlier)


class EarlierProofs:
    """The proofs in a folder, to be tried on another network: a function from properties to starts of their searches.

    A proof is used for a property with the same box and the same label, whatever its file is called.

    Args:
        path: A folder of proofs, or a run that has one.

    Attributes:
        used: How many proofs were tried.
        problems: What kept proofs from being tried, with the number of properties.

    Raises:
        UserError: There are no proofs, or ``steadycheck`` is not installed, which reads them.
    """

    def __init__(self, path: Path) -> None:
        require_steadycheck()
        from steadycheck import Refused, read_network

        self.path = path / "proofs" if (path / "proofs").is_dir() else path
        self.used, self.problems = 0, dict[str, int]()
        self.files = {
            hashlib.sha256(proof.with_suffix(".vnnlib").read_bytes()).digest(): proof
            for proof in sorted(self.path.glob("*.proof"))
            if proof.with_suffix(".vnnlib").is_file()
        }
        if not self.files or not (self.path / "model.onnx").is_file():
            raise UserError(f"there are no proofs in {path}: write some with steadynet verify … --proofs")
        try:
            self.network = read_network((self.path / "model.onnx").read_bytes())
        except Refused as error:
            raise UserError(f"{self.path / 'model.onnx'}: {one_line(error)}") from error

    def __call__(self, properties: Properties) -> list[CarryOver]:
        """One record per property, which reads its proof when a search asks for it."""
        boxes = (properties.region[index : index + 1] for index in range(len(properties)))
        labels = properties.labels.tolist()
        return [
            CarryOver(earlier=partial(self._read, box.lower, box.upper, label))
            for box, label in zip(boxes, labels, strict=True)
        ]

    def described(self) -> str:
        """What became of the proofs, in one line."""
        line = f"earlier proofs: {self.used} tried ({self.path})"
        return line + "".join(f", {number} {reason}" for reason, number in self.problems.items())

    def _read(self, lower: Tensor, upper: Tensor, label: int, network: BoundedNetwork) -> EarlierProof | None:
        from steadynet.verification.proofs.reading import Refused, sizes_of

        classes = prod(network.shapes[network.output])
        sizes = [prod(network.shapes[position]) for position in network.graph.relus]
        if sizes != sizes_of(self.network):
            self._note("of a network with other ReLU layers, so the search is an ordinary one")
            return None
        proof = self._find(lower, upper, label, classes)
        if proof is None:
            self._note("without a proof of the same box and label")
            return None
        try:
            found = self._converted(proof, lower, upper, label, classes, network)
        except (Refused, OSError) as error:
            self._note(f"not readable ({one_line(error)})")
            return None
        if found is None:
            self._note("with halved inputs, which are searched anew")
        self.used += found is not None
        return found

    def _note(self, why: str) -> None:
        self.problems[why] = self.problems.get(why, 0) + 1

    def _find(self, lower: Tensor, upper: Tensor, label: int, classes: int) -> Path | None:
        """The proof of the same box and label: of the same VNN-LIB text, or of another text that says the same."""
        text = format_robustness(lower, upper, label, classes).encode()
        return self.files.get(hashlib.sha256(text).digest()) or self._by_content.get(
            _key(_flat(lower), _flat(upper), label, classes)
        )

    @cached_property
    def _by_content(self) -> dict[bytes, Path]:
        """The proofs of robustness properties by what their VNN-LIB files say."""
        from steadycheck import Refused, read_property, regions

        result = {}
        for proof in self.files.values():
            try:
                groups = regions(read_property(proof.with_suffix(".vnnlib").read_bytes(), self.network))
            except (Refused, OSError, UnicodeDecodeError):
                continue
            if len(groups) == 1 and all(len(violation.bound) == 1 for violation in groups[0]):
                rows = np.concatenate([violation.matrix for violation in groups[0]])
                zero = all(not violation.bound.any() for violation in groups[0])
                label = int(rows[0].argmax())
                if zero and np.array_equal(rows, _rows(label, rows.shape[1])):
                    result[_key(groups[0][0].lower, groups[0][0].upper, label, rows.shape[1])] = proof
        return result

    def _converted(
        self, proof: Path, lower: Tensor, upper: Tensor, label: int, classes: int, network: BoundedNetwork
    ) -> EarlierProof | None:
        """A proof in terms of another network; None if it halves inputs."""
        from steadycheck import Violation
        from steadynet.verification.proofs.reading import read_proof, sizes_of

        corners = _flat(lower), _flat(upper)
        violations = [Violation(*corners, row[None], np.zeros(1)) for row in _rows(label, classes)]
        (region,) = read_proof(proof.read_bytes(), sizes_of(self.network), [violations])
        if region.halves:
            return None
        device, first, layers = network.box.lower.device, 0, []
        for position, elements in zip(network.graph.relus, region.kept, strict=True):
            rows, chosen = slice(first, first + len(elements)), torch.from_numpy(elements).to(device)
            layers.append(NumberedNeurons(position, tuple(network.shapes[position]), chosen, rows))
            first = rows.stop
        leaves = _leaves_of(region, tuple(layers), network.box.lower)
        refined = {
            layer.position: torch.from_numpy(known.astype(np.float32)).to(network.box.lower).div_(65535)
            for layer, known in zip(layers, region.refined, strict=True)
            if known is not None
        }
        return EarlierProof(tuple(layers), leaves, refined)


def _leaves_of(region: StoredRegion, layers: tuple[NumberedNeurons, ...], like: Tensor) -> EarlierLeaves:
    """The leaves of all margins, in numbers of the kind of ``like``."""
    whole, places = partial(torch.as_tensor, device=like.device, dtype=torch.long), torch.as_tensor
    found = region.leaves
    multipliers = places(found.beta).to(like).nan_to_num(0.0, 0.0, 0.0).clamp_min(0)  # a proof rests on their being ≥ 0
    splits = SplitColumns(whole(found.relu), whole(found.leaf), places(found.sign).to(like), multipliers)
    return EarlierLeaves(layers, whole(found.violation), splits, whole(found.slopes), region.slopes)


def _rows(label: int, classes: int) -> Array:
    """The margins of a label, in the order of the search and of the VNN-LIB text."""
    one_hot = np.eye(classes)
    return one_hot[label] - np.delete(one_hot, label, 0)


def _flat(corner: Tensor) -> Array:
    return corner.detach().cpu().double().flatten().numpy()


def _key(lower: Array, upper: Array, label: int, classes: int) -> bytes:
    """What two properties have in common if they say the same; the last digits of a box do not matter for a start."""
    corners = np.round(np.stack([lower, upper]) / CLOSE).astype(np.int64)
    return corners.tobytes() + f" {label} of {classes}".encode()
