"""A network and properties of it as a folder that every verifier of the competition takes.

``model.onnx``, one VNN-LIB file a property in each version of the format, and a list of instances for each: network,
property, time-out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.files import disk_errors, write_text, write_toml
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.files import write_vnnlib
from steadynet.interchange.vnnlib.robustness import robustness_property, write_robustness

VERSIONS = ("1.0", "2.0")  # of VNN-LIB


@dataclass(frozen=True)
class ExportFolder:
    """What is called how, in the folder of an export."""

    path: Path

    @property
    def about(self) -> Path:
        """What was exported; the mark of an export, written first."""
        return self.path / "export.toml"

    @property
    def model(self) -> Path:
        """The network, normalisation inside, for any batch size."""
        return self.path / "model.onnx"

    def instances(self, version: str) -> Path:
        """The list of instances, written last: with it, the export is whole."""
        return self.path / ("instances.csv" if version == VERSIONS[0] else f"instances-{version}.csv")

    def property(self, version: str, index: int, eps: float) -> Path:
        """One property: a test image, by its index, and a radius."""
        return self.path / "vnnlib" / version / f"prop_{index}_eps_{eps!r}.vnnlib"

    @classmethod
    def at(cls, path: str | Path) -> ExportFolder:
        """The folder of an export, which may not be there yet."""
        return cls(Path(path))

    def check_free(self) -> None:
        """Nothing may be there but an earlier export."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file: name a folder with --out")
        if self.path.is_dir() and any(self.path.iterdir()) and not self.about.is_file():
            raise UserError(f"{self.path} holds other files, not an earlier export: name a new folder with --out")

    def clear(self) -> None:
        """Remove the properties of an earlier export; its lists first, so that none is left without them."""
        with disk_errors(self.path):
            for version in VERSIONS:
                self.instances(version).unlink(missing_ok=True)
                for left in (self.path / "vnnlib" / version).glob("prop_*_eps_*.vnnlib"):
                    left.unlink()


@dataclass(frozen=True)
class RobustnessProperties:
    """That images keep their labels within some radii: images (n, *shape) in [0, 1], and what the data calls them."""

    images: Tensor
    labels: Tensor
    index: Sequence[int]
    radii: Sequence[float]
    classes: int

    def __len__(self) -> int:
        return len(self.index) * len(self.radii)


def export(
    network: nn.Module,
    properties: RobustnessProperties,
    path: str | Path,
    *,
    timeout: float = 60.0,
    about: dict[str, Any] | None = None,
    on_property: Callable[[], None] = lambda: None,
) -> ExportFolder:
    """Write a network and properties of it; an earlier export in the folder is replaced, other files are not.

    ``about`` goes into ``export.toml``; ``on_property`` hears of every property written.
    """
    folder = ExportFolder.at(path)
    folder.check_free()
    folder.clear()
    said = {"eps": list(properties.radii), "timeout": timeout, "images": list(properties.index)}
    write_toml(folder.about, (about or {}) | said)
    export_onnx(network, tuple(properties.images.shape[1:]), folder.model)
    lines: dict[str, list[str]] = {version: [] for version in VERSIONS}
    for eps in properties.radii:
        region = InputRegion.around(properties.images, eps)
        for place, index in enumerate(properties.index):
            for version in VERSIONS:
                file = folder.property(version, index, eps)
                _write(file, version, region[place : place + 1], int(properties.labels[place]), properties.classes)
                lines[version].append(f"{folder.model.name},{file.relative_to(folder.path).as_posix()},{timeout:g}\n")
            on_property()
    for version, written in lines.items():
        write_text(folder.instances(version), "".join(written))
    return folder


def _write(file: Path, version: str, box: InputRegion, label: int, classes: int) -> None:
    if version == "1.0":
        write_robustness(file, box.lower, box.upper, label, classes)
    else:
        vnnlib_property = robustness_property(box.lower, box.upper, label, classes)
        write_vnnlib(
            file, vnnlib_property, version=version, input_shape=tuple(box.lower.shape), output_shape=(1, classes)
        )
