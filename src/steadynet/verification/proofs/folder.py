"""A folder of proofs: ``model.onnx``, and per proved property NAME.vnnlib and NAME.proof. ``steadycheck`` reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError, one_line
from steadynet.files import write_atomically
from steadynet.graph.operations import Shape
from steadynet.graph.rounding import Arithmetic
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.robustness import format_robustness
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.search.hints import ProofHints

if TYPE_CHECKING:
    from steadycheck import Network, Violation

HOW_TO_INSTALL = "proofs need steadycheck, which is in the source code of steadynet: pip install ./checker"
SECONDS = 60.0  # that one proof may take


def has_steadycheck() -> bool:
    """Whether ``steadycheck`` is installed."""
    return find_spec("steadycheck") is not None


def require_steadycheck() -> None:
    """Refuse with a line that says how to install ``steadycheck``, if it is not there.

    Raises:
        UserError: It is not there.
    """
    if not has_steadycheck():
        raise UserError(HOW_TO_INSTALL)


@dataclass
class ProofFolder:
    """Where the proofs of one network are written.

    Attributes:
        path: The folder.
        sha256: The hash of the network's file, once it is known.
        missing: Per property without a proof, its name and the reason.
        written: The names of the properties whose proof was written.
    """

    path: Path
    sha256: bytes = b""
    missing: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    _network: Network | None = None

    @property
    def model(self) -> Path:
        """The network that the proofs speak of."""
        return self.path / "model.onnx"

    def proof(self, name: str) -> Path:
        """The proof of a property."""
        return self.path / f"{name}.proof"

    def has(self, name: str, property_file: bytes) -> bool:
        """Whether a property has a proof here: one of this network and this property, by the hashes that it holds."""
        from steadycheck import Refused, Source

        try:
            if self._property(name).read_bytes() != property_file:
                return False
            hashes = Source(self.proof(name).read_bytes()).array("u1", 64).astype(np.uint8).tobytes()
        except (OSError, Refused):
            return False
        return hashes == self.sha256 + hashlib.sha256(property_file).digest()

    def settle(self, name: str, property_file: bytes, verdict: Verdict) -> None:
        """Remove a proof that a property of this name should not have: of something else, or of what is refuted."""
        if verdict is Verdict.SAT or not self.has(name, property_file):
            self._remove(name)

    def _property(self, name: str) -> Path:
        return self.path / f"{name}.vnnlib"

    def _remove(self, name: str) -> None:
        if self.proof(name).is_file():
            self.proof(name).unlink()
            self._property(name).unlink(missing_ok=True)

    def export(self, network: nn.Module, shape: Shape) -> None:
        """Write a network of PyTorch; if another one was here, its proofs are removed."""
        require_steadycheck()
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / "model.onnx.new"
        export_onnx(network, shape, temporary)
        content = temporary.read_bytes()
        temporary.unlink()
        self.open(content)

    def take(self, model: object, network: nn.Module, shape: Shape) -> None:
        """Take a network that a user gave: an ONNX file as it is, anything else as it is exported."""
        if isinstance(model, (str, Path)) and Path(model).suffix == ".onnx":
            self.open(Path(model).read_bytes())
        else:
            self.export(network, shape)

    def open(self, content: bytes) -> None:
        """Take a network from the content of its ONNX file; if another one was here, its proofs are removed.

        Raises:
            UserError: ``steadycheck`` is not installed, or refuses the network.
        """
        require_steadycheck()
        from steadynet.verification.proofs.writing import open_network

        self._network, self.sha256 = open_network(content), hashlib.sha256(content).digest()
        if not self.model.is_file() or self.model.read_bytes() != content:
            for earlier in self.path.glob("*.proof"):
                self._remove(earlier.stem)
            write_atomically(self.model, lambda path: path.write_bytes(content))

    def write(
        self,
        name: str,
        property_file: bytes,
        hints_of: Callable[[bytes], ProofHints | None],
        exact: bool,
        known: Sequence[Violation] | None = None,
    ) -> None:
        """Prove a property again and write its files; or note why that was not possible.

        A proof of something else with this name is removed.

        Args:
            name: The name of the files.
            property_file: The content of the VNN-LIB file.
            hints_of: What the search left for the box with these corners (the bytes of float64 numbers).
            exact: Whether it was proved for exact arithmetic only.
            known: The violations that the file lists, if they are known without reading it.
        """
        from steadynet.verification.proofs.prover import NoProofError
        from steadynet.verification.proofs.writing import prove

        assert self._network is not None
        self.settle(name, property_file, Verdict.UNSAT)
        try:
            proof = prove(
                self._network,
                property_file,
                lambda number, one: hints_of((one.lower + 0.0).tobytes() + (one.upper + 0.0).tobytes()),
                exact=exact,
                seconds=SECONDS,
                known=known,
            )
            write_atomically(self._property(name), lambda path: path.write_bytes(property_file))
            write_atomically(self.proof(name), lambda path: path.write_bytes(proof))
            self.written.append(name)
        except NoProofError as error:
            self.missing[name] = str(error)
        except Exception as error:  # a verdict does not depend on its proof: whatever goes wrong here, it stays
            self.missing[name] = f"it could not be written: {type(error).__name__}: {one_line(error)}"

    def write_robustness(self, name: str, properties: Properties, index: int, classes: int, result: Result) -> None:
        """The same for a robustness property that was just decided. If it was not proved, see :meth:`settle`."""
        box, label = properties.region[index : index + 1], int(properties.labels[index])
        content = robustness_file(properties, index, classes)
        if result.verdict is not Verdict.UNSAT:
            self.settle(name, content, result.verdict)
            return
        hints = result.hints if isinstance(result.hints, ProofHints) else None
        exact = result.arithmetic is Arithmetic.EXACT
        self.write(name, content, lambda corners: hints, exact, _violations(box, label, classes))

    def described(self, proved: int) -> str:
        """How many of the proved properties have a proof, in one line."""
        reasons = sorted(set(self.missing.values()))
        line = f"{proved - len(self.missing)} of {proved} proofs written: {self.path} (check them with steadycheck)"
        return line + "".join(f"\nno proof: {reason}" for reason in reasons[:3])


def robustness_file(properties: Properties, index: int, classes: int) -> bytes:
    """The content of the VNN-LIB file of a robustness property."""
    box = properties.region[index : index + 1]
    return format_robustness(box.lower, box.upper, int(properties.labels[index]), classes).encode()


def _violations(box: InputRegion, label: int, classes: int) -> list[Violation]:
    """What ``format_robustness`` writes, as ``steadycheck`` reads it."""
    from steadycheck import Violation

    lower, upper = (corner.detach().cpu().double().flatten().numpy() + 0.0 for corner in (box.lower, box.upper))
    one_hot = np.eye(classes)
    rows = [one_hot[label] - one_hot[other] for other in range(classes) if other != label]
    return [Violation(lower, upper, row[None], np.zeros(1)) for row in rows]
