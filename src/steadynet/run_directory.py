"""The run directory: the only place that knows what artefacts are called. Every write is all or nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from steadynet.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class RunDirectory:
    """One training run on disk: its configuration, its weights and what was measured of them."""

    path: Path

    @property
    def config(self) -> Path:
        """The full resolved configuration."""
        return self.path / "config.toml"

    @property
    def weights(self) -> Path:
        """The weights of the finished training."""
        return self.path / "weights.safetensors"

    @property
    def checkpoint(self) -> Path:
        """Everything a killed training needs to go on."""
        return self.path / "checkpoint.safetensors"

    @property
    def metrics(self) -> Path:
        """One JSON object an epoch."""
        return self.path / "metrics.jsonl"

    @property
    def evaluation(self) -> Path:
        """Accuracy, attacked accuracy and stable share on test images."""
        return self.path / "evaluation.json"

    @property
    def model_source(self) -> Path:
        """A copy of the user's model file, so that the run can be loaded wherever it is."""
        return self.path / "model.py"

    @property
    def events(self) -> Path:
        """TensorBoard's folder."""
        return self.path / "tensorboard"

    @classmethod
    def existing(cls, path: str | Path) -> RunDirectory:
        """A run that is there."""
        run = cls(Path(path))
        if not run.config.is_file():
            raise UserError(f"{path} is not a run directory (it has no {run.config.name})")
        return run

    def read_config(self) -> dict[str, Any]:
        """The configuration as a dictionary."""
        return read_toml(self.config)

    def read_metrics(self) -> list[dict[str, Any]]:
        """What was measured, an epoch each; a line cut short by a crash is left out."""
        if not self.metrics.is_file():
            return []
        rows = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; what is wrong with it is said in one line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error


def write_toml(path: Path, content: Mapping[str, Any]) -> None:
    """A TOML file, written whole or not at all."""
    write_atomically(path, lambda temporary: temporary.write_text(tomli_w.dumps(content), encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """A JSON file, written whole or not at all."""
    text = json.dumps(content, indent=2) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """``write`` a temporary file beside ``path``, then put it in its place: readers see the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """A full disk, a missing right, a folder in the way: one line that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; what was there before is untouched"
        ) from error
