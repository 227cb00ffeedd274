"""Export a network and its robustness properties as a folder that VNN-COMP verifiers can read.

The folder holds ``model.onnx``, one VNN-LIB file per property and version of VNN-LIB, and one list of VNN-COMP
instances (network, property file, time-out) per version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.files import disk_errors, write_text, write_toml
from steadynet.graph.translate import graph_of
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.files import VERSIONS, write_vnnlib
from steadynet.interchange.vnnlib.robustness import robustness_property, write_robustness


@dataclass(frozen=True)
class ExportFolder:
    """The file names in the folder of an export."""

    path: Path

    @property
    def description(self) -> Path:
        """What was exported. It is written first, and marks the folder as an export."""
        return self.path / "export.toml"

    @property
    def model(self) -> Path:
        """The network, with its normalisation, for any batch size."""
        return self.path / "model.onnx"

    def instances(self, version: str) -> Path:
        """The list of instances for one version of VNN-LIB. It is written last, when the export is complete."""
        return self.path / ("instances.csv" if version == VERSIONS[0] else f"instances-{version}.csv")

    def property_file(self, version: str, index: int, eps: float) -> Path:
        """The property of one test image, by its index, at one radius."""
        return self.path / "vnnlib" / version / f"prop_{index}_eps_{eps!r}.vnnlib"

    def check_free(self) -> None:
        """Raise ``UserError`` if the folder holds anything but an earlier export."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file: name a folder with --out")
        if self.path.is_dir() and any(self.path.iterdir()) and not self.description.is_file():
            raise UserError(f"{self.path} holds other files, not an earlier export: name a new folder with --out")

    def clear(self) -> None:
        """Delete the properties of an earlier export; the lists go first, so that none names a missing file."""
        with disk_errors(self.path):
            for version in VERSIONS:
                self.instances(version).unlink(missing_ok=True)
                for earlier in (self.path / "vnnlib" / version).glob("prop_*_eps_*.vnnlib"):
                    earlier.unlink()


@dataclass(frozen=True)
class RobustnessProperties:
    """Local robustness of some images at some radii: one property per image and radius.

    Args:
        images: The images, of shape (n, *image_shape), with pixels in [0, 1].
        labels: The class of each image, of shape (n,).
        indices: The index of each image in its data set, for the file names.
        radii: The radii ε.
        class_count: The number of classes.
    """

    images: Tensor
    labels: Tensor
    indices: Sequence[int]
    radii: Sequence[float]
    class_count: int

    def __len__(self) -> int:
        return len(self.indices) * len(self.radii)


@dataclass(frozen=True)
class ExportOrigin:
    """Where the exported network and images come from; written to ``export.toml``.

    Args:
        run: The name of the run directory.
        data: The data set.
        per_class: How many test images of each class were taken.
    """

    run: str
    data: str
    per_class: int


def export(
    network: nn.Module,
    properties: RobustnessProperties,
    path: str | Path,
    *,
    timeout: float = 60.0,
    origin: ExportOrigin | None = None,
    on_property: Callable[[], None] = lambda: None,
) -> ExportFolder:
    """Write a network and its robustness properties as ONNX and VNN-LIB files.

    An earlier export in the folder is replaced. A folder with other files is left alone.

    Args:
        network: The network, whose operations must have known bounds.
        properties: The images and the radii.
        path: The folder to write.
        timeout: The seconds per instance, for the lists of instances.
        origin: Where the network and the images come from, for ``export.toml``.
        on_property: Called after each property that was written.

    Returns:
        The folder and the names of its files.

    Raises:
        UserError: The folder holds other files, the network cannot be written as ONNX, a label is not one of its
            classes, or the disk is full.

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> images, labels = torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 0])
    >>> properties = RobustnessProperties(images, labels, indices=[0, 1, 2], radii=[0.1], class_count=2)
    >>> with TemporaryDirectory() as path:
    ...     folder = export(network, properties, path, timeout=30)
    ...     print(folder.instances("1.0").read_text(), end="")
    model.onnx,vnnlib/1.0/prop_0_eps_0.1.vnnlib,30
    model.onnx,vnnlib/1.0/prop_1_eps_0.1.vnnlib,30
    model.onnx,vnnlib/1.0/prop_2_eps_0.1.vnnlib,30
    """
    folder = ExportFolder(Path(path))
    folder.check_free()
    _check_labels(properties)
    graph_of(network, tuple(properties.images.shape[1:]))  # refuses what has no bounds, before anything is written
    folder.clear()
    described = {"eps": list(properties.radii), "timeout": timeout, "images": list(properties.indices)}
    write_toml(folder.description, (asdict(origin) if origin else {}) | described)
    export_onnx(network, tuple(properties.images.shape[1:]), folder.model)
    instances: dict[str, list[str]] = {version: [] for version in VERSIONS}
    for eps in properties.radii:
        region = InputRegion.around(properties.images, eps)
        for row, index in enumerate(properties.indices):
            box, label = region[row : row + 1], int(properties.labels[row])
            for version in VERSIONS:
                file = folder.property_file(version, index, eps)
                _write_property(file, version, box, label, properties.class_count)
                name = file.relative_to(folder.path).as_posix()
                instances[version].append(f"{folder.model.name},{name},{timeout:g}\n")
            on_property()
    for version, lines in instances.items():
        write_text(folder.instances(version), "".join(lines))
    return folder


def _check_labels(properties: RobustnessProperties) -> None:
    wrong = [label for label in properties.labels.tolist() if not 0 <= label < properties.class_count]
    if wrong:
        last = properties.class_count - 1
        raise UserError(f"there is a label {wrong[0]}, but there are {last + 1} classes: 0 to {last}")


def _write_property(file: Path, version: str, box: InputRegion, label: int, class_count: int) -> None:
    if version == "1.0":
        write_robustness(file, box.lower, box.upper, label, class_count)
    else:
        robust = robustness_property(box.lower, box.upper, label, class_count)
        number_type = str(box.lower.dtype).removeprefix("torch.")
        shapes: dict[str, tuple[int, ...]] = {
            "input_shape": tuple(box.lower.shape),
            "output_shape": (1, class_count),
        }
        write_vnnlib(file, robust, version=version, number_type=number_type, **shapes)
