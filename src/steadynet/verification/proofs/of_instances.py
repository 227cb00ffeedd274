"""Proofs of VNN-COMP instances: one folder per network, with copies of the files that the proofs speak of."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path

from steadynet.errors import UserError
from steadynet.graph.rounding import Arithmetic
from steadynet.verification.proofs.folder import ProofFolder, require_steadycheck
from steadynet.verification.vnncomp import Instance, InstanceResult


@dataclass
class InstanceProofs:
    """Writes the proofs of instances below one folder."""

    path: Path
    _folders: dict[Path, ProofFolder] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    written: int = 0

    def __post_init__(self) -> None:
        require_steadycheck()

    def has(self, instance: Instance) -> bool:
        """Whether an instance has a proof already."""
        return ProofFolder(self.path / _stem(instance.network)).has(_stem(instance.property_file))

    def write(self, instance: Instance, result: InstanceResult) -> None:
        """Write the proof of an instance that was proved with hints; or note why there is none."""
        name, hints = _stem(instance.property_file), result.hints
        if hints is None:
            return
        content = instance.property_file.read_bytes()
        content = gzip.decompress(content) if instance.property_file.suffix == ".gz" else content
        try:
            folder = self._folder(instance.network)
        except UserError as error:
            self.missing[name] = str(error)
            return
        folder.write(name, content, hints.get, exact=result.arithmetic is Arithmetic.EXACT)
        if name in folder.missing:
            self.missing[name] = folder.missing[name]
        else:
            self.written += 1

    def _folder(self, network: Path) -> ProofFolder:
        if network not in self._folders:
            folder = ProofFolder(self.path / _stem(network))
            content = network.read_bytes()
            folder.open(gzip.decompress(content) if network.suffix == ".gz" else content)
            self._folders[network] = folder
        return self._folders[network]

    def described(self) -> str:
        """How many proofs there are, in a few lines."""
        lines = [f"{self.written} proofs written: {self.path} (check them with steadycheck)"]
        return "\n".join(lines + [f"no proof of {name}: {reason}" for name, reason in self.missing.items()])


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".vnnlib").removesuffix(".onnx")
