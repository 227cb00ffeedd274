"""The run directory: the only place that knows the names of a run's files."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from steadynet.errors import UserError
from steadynet.files import TEMPORARY, disk_errors, write_text
from steadynet.runs.config import RunConfig, read_config, write_config
from steadynet.runs.metrics import EpochMetrics


@dataclass(frozen=True)
class RunDirectory:
    """One training run on disk: its configuration, its weights, and what was measured and verified of them.

    Args:
        path: The directory. It need not exist yet.
    """

    path: Path

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def config(self) -> Path:
        """The complete configuration."""
        return self.path / "config.toml"

    @property
    def weights(self) -> Path:
        """The weights of the finished training."""
        return self.path / "weights.safetensors"

    @property
    def checkpoint(self) -> Path:
        """Everything that a stopped training needs to continue; only there while the training is not finished."""
        return self.path / "checkpoint.safetensors"

    @property
    def metrics(self) -> Path:
        """The metrics of the training: one JSON object per epoch."""
        return self.path / "metrics.jsonl"

    @property
    def evaluation(self) -> Path:
        """Accuracy, accuracy under attack and stable share on test images."""
        return self.path / "evaluation.json"

    @property
    def proofs(self) -> Path:
        """The folder of proofs that ``steadycheck`` checks."""
        return self.path / "proofs"

    @property
    def pruning(self) -> Path:
        """What ``prune`` set to zero, and what that changed."""
        return self.path / "pruning.json"

    @property
    def grafting(self) -> Path:
        """Which ReLUs ``graft`` replaced by lines, and what that changed."""
        return self.path / "grafting.json"

    @property
    def sparsification(self) -> Path:
        """What ``sparsify`` made of the dense layers, and what that changed."""
        return self.path / "sparsification.json"

    @property
    def tuning(self) -> Path:
        """The record of the search for the strength that this run was trained with."""
        return self.path / "tuning.json"

    @property
    def published(self) -> Path:
        """What is known of a published network, whose weights may be elsewhere."""
        return self.path / "published.json"

    @property
    def verdicts(self) -> Path:
        """The verdicts: one row per verified property."""
        return self.path / "verdicts.csv"

    @property
    def regions(self) -> Path:
        """The verdicts on regions and claims beyond the label in an ε-box: one row per image and question."""
        return self.path / "regions.csv"

    @property
    def radii(self) -> Path:
        """The largest proved and the smallest refuted radius of images: one row per image."""
        return self.path / "radii.csv"

    @property
    def counterexamples(self) -> Path:
        """The folder of the counterexamples, the inputs that refute properties."""
        return self.path / "counterexamples"

    def counterexample(self, index: int, eps: float, key: str) -> Path:
        """Return the file of the counterexample to one property.

        Args:
            index: The index of the test image.
            eps: The radius.
            key: The key of the verdict, so that another network or verifier gets another file.
        """
        return self.counterexamples / f"image-{index}-eps-{eps!r}-{key[-16:]}.safetensors"

    def cross_check(self, index: int, eps: float) -> Path:
        """Return the folder of the evidence that verifiers contradict each other on one test image at one radius."""
        return self.path / "cross-check" / f"image-{index}-eps-{eps!r}"

    @property
    def shards(self) -> Path:
        """The folder of verdicts that are still to be merged into ``verdicts.csv``."""
        return self.path / "shards"

    def shard(self, name: str) -> RunDirectory:
        """Return the directory of one shard: the verdicts and counterexamples of some of the properties."""
        return RunDirectory(self.shards / name)

    @property
    def model_source(self) -> Path:
        """A copy of the user's model file, so that the run can be loaded without the original."""
        return self.path / "model.py"

    @property
    def method_sources(self) -> Path:
        """The folder with copies of the user's own files of methods, so that the run can be resumed without them."""
        return self.path / "methods"

    @property
    def network_file(self) -> Path:
        """The network of a run that was imported from ONNX."""
        return self.path / "network.onnx"

    @property
    def events(self) -> Path:
        """The folder of TensorBoard's events."""
        return self.path / "tensorboard"

    @classmethod
    def of_network(cls, file: str | Path) -> RunDirectory:
        """Return the run directory of a network that was trained elsewhere, unless the user names another.

        >>> RunDirectory.of_network("models/net.onnx").path.as_posix()
        'runs/net'
        """
        return cls(Path("runs") / (Path(file).name.partition(".")[0] or "network"))

    @classmethod
    def existing(cls, path: str | Path) -> RunDirectory:
        """Return a run directory that must exist.

        Raises:
            UserError: It does not exist, or there is no ``config.toml`` in it.
        """
        run = cls(Path(path))
        if not run.config.is_file():
            problem = f"is not a run directory (it has no {run.config.name})" if run.path.exists() else "does not exist"
            hint = f", such as {run._run_inside()}" if run._run_inside() else ""
            raise UserError(
                f"{path} {problem}: give the directory that steadynet train wrote{hint}, "
                "an ONNX file, or file.py:factory"
            )
        return run

    def _run_inside(self) -> Path | None:
        """Return one of the run directories in this folder, or in its ``runs``; None if there is none."""
        found = [path.parent for pattern in ("*", "runs/*") for path in self.path.glob(f"{pattern}/{self.config.name}")]
        return min(found, default=None)

    def is_run(self) -> bool:
        """Whether a training made this directory. A ``config.toml`` alone may belong to another program."""
        if not self.config.is_file():
            return False
        artefacts = (self.weights, self.checkpoint, self.metrics)
        return any(path.is_file() for path in artefacts) or b"[input]" in self.config.read_bytes()

    def is_free(self) -> bool:
        """Whether a new run can be written here: the directory holds nothing but left-overs of killed processes."""
        if not self.path.is_dir():
            return not self.path.exists()
        return set(self.path.iterdir()) <= set(self._left_overs())

    def clear(self) -> None:
        """Remove everything but the configuration, so that the directory is recognised as a run at every moment."""
        with disk_errors(self.path):
            for path in self.path.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path != self.config:
                    path.unlink()

    def remove_left_overs(self, name: str = "*") -> None:
        """Remove the half-written files of killed processes.

        Args:
            name: The file that they were to become; all files unless given. Give it if other files may be written now.
        """
        for path in self._left_overs(name):
            path.unlink(missing_ok=True)

    def _left_overs(self, name: str = "*") -> list[Path]:
        folders = (self.counterexamples, self.method_sources)
        inside = [path for folder in folders for path in folder.glob(f".*{TEMPORARY}")]
        return [*self.path.glob(f".{name}.*{TEMPORARY}"), *inside]

    def read_config(self) -> RunConfig:
        """Read the configuration.

        Raises:
            UserError: ``config.toml`` is damaged.
        """
        return read_config(self.config)

    def write_config(self, config: RunConfig) -> None:
        """Write the configuration."""
        write_config(self.config, config)

    def read_metrics(self) -> list[EpochMetrics]:
        """Read the metrics, one record per epoch. A damaged line and all lines after it are left out."""
        if not self.metrics.is_file():
            return []
        rows = []
        for line in self.metrics.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                rows.append(EpochMetrics.from_line(line))
            except ValueError:
                break
        return rows

    def add_metrics(self, metrics: EpochMetrics) -> None:
        """Append the metrics of one epoch. Rows of this epoch and later ones, by a killed training, are dropped."""
        rows = [row for row in self.read_metrics() if row.epoch < metrics.epoch] + [metrics]
        write_text(self.metrics, "".join(row.to_line() + "\n" for row in rows))
