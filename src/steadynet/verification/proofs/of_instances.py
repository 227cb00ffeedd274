"""Proofs of VNN-COMP instances: one folder per network, with copies of the files that the proofs speak of.

Folders and files are named after the files and their contents, as several networks or properties may have one name, and
a file that is changed becomes another one. So a proof is never taken for that of a file with another content.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from steadynet.errors import UserError, one_line
from steadynet.graph.rounding import Arithmetic
from steadynet.verification.proofs.folder import ProofFolder, require_steadycheck
from steadynet.verification.properties import Verdict
from steadynet.verification.vnncomp import Instance, InstanceResult


@dataclass
class InstanceProofs:
    """Writes the proofs of instances below one folder."""

    path: Path
    _folders: dict[str, ProofFolder] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    written: int = 0

    def __post_init__(self) -> None:
        require_steadycheck()

    def has(self, instance: Instance) -> bool:
        """Whether an instance, as its files are now, has a proof already."""
        try:
            network, content = _content(instance.network), _content(instance.property_file)
        except OSError:
            return False
        folder = ProofFolder(self.path / _name(instance.network, network), hashlib.sha256(network).digest())
        return folder.has(_name(instance.property_file, content), content)

    def write(self, instance: Instance, result: InstanceResult) -> None:
        """Write the proof of an instance that was proved with hints; or note why there is none."""
        called = f"{instance.network.name}, {instance.property_file.name}"
        try:
            network, content = _content(instance.network), _content(instance.property_file)
            name, place = _name(instance.property_file, content), _name(instance.network, network)
            if result.verdict is Verdict.SAT:
                ProofFolder(self.path / place).settle(name, content, result.verdict)
            if result.hints is None:
                return
            if place not in self._folders:
                folder = ProofFolder(self.path / place)
                folder.open(network)
                self._folders[place] = folder
        except (UserError, OSError) as error:
            self.missing[called] = one_line(error)
            return
        folder = self._folders[place]
        folder.write(name, content, result.hints.get, exact=result.arithmetic is Arithmetic.EXACT)
        if name in folder.missing:
            self.missing[called] = folder.missing[name]
        else:
            self.written += 1

    def described(self) -> str:
        """How many proofs there are, in a few lines."""
        lines = [f"{self.written} proofs written: {self.path} (check them with steadycheck)"]
        return "\n".join(lines + [f"no proof of {name}: {reason}" for name, reason in self.missing.items()])


def _content(file: Path) -> bytes:
    content = file.read_bytes()
    return gzip.decompress(content) if file.suffix == ".gz" else content


def _name(file: Path, content: bytes) -> str:
    """The name of a file without its ending, and the begin of the hash of its content."""
    stem = file.name.removesuffix(".gz").removesuffix(".vnnlib").removesuffix(".onnx")
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:8]}"
