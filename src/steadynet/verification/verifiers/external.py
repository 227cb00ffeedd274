"""What verifiers that are other people's programs share: files to give them, and a check of what they say."""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadynet.attacks.pgd import misclassified
from steadynet.errors import UserError
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.robustness import write_robustness
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.verification.properties import Properties, Result, Verdict, is_counterexample
from steadynet.verification.verifiers.base import Verifier

_VALUE = re.compile(r"\(\s*X_(\d{1,9})\s+([^\s()]{1,60})\s*\)")

Told = Callable[[int, Result], None]


@dataclass(frozen=True)
class Files:
    """Properties as files: ``model.onnx`` and ``<index>.vnnlib`` in a folder that is theirs alone."""

    properties: Properties
    folder: Path

    @property
    def model(self) -> Path:
        """The network."""
        return self.folder / "model.onnx"

    def property(self, index: int) -> Path:
        """One property; written when first asked for."""
        path = self.folder / f"{index}.vnnlib"
        if not path.is_file():
            region, label = self.properties.region, int(self.properties.labels[index])
            write_robustness(path, region.lower[index], region.upper[index], label, self.classes())
        return path

    def classes(self) -> int:
        """How many the network knows."""
        with torch.no_grad():
            return int(self.properties.network(self.properties.images[:1]).shape[1])

    def refuted(self, index: int, values: NDArray[np.float64] | None, result: Result) -> Result | None:
        """The result as ``sat``, if these values, rounded into the region, are a counterexample."""
        region = self.properties.region[index : index + 1]
        if values is None or values.size != region.lower.numel() or not np.isfinite(values).all():
            return None
        point = torch.from_numpy(values).reshape(region.lower.shape).to(region.lower)
        return _refuted(self.properties, index, region.project(point)[0], result)


def _refuted(properties: Properties, index: int, point: Tensor, result: Result) -> Result | None:
    if not is_counterexample(properties, index, point):
        return None
    return replace(result, verdict=Verdict.SAT, counterexample=point.clone(), reason="")


def read_values(text: str) -> NDArray[np.float64] | None:
    """The inputs of a counterexample as the competition writes it, ``((X_0 0.1) (X_1 0.2) (Y_0 3.4))``; None if broken.

    >>> read_values("((X_1 0.5)\\n(X_0 -1e-3)\\n(Y_0 7))").tolist()
    [-0.001, 0.5]
    """
    try:
        found = {int(index): float(value) for index, value in _VALUE.findall(text)}
    except ValueError:
        return None
    if not found or max(found) != len(found) - 1:
        return None
    return np.array([found[index] for index in range(len(found))])


class Outside(Verifier):
    """A verifier outside this program: a subclass says in ``decide`` how to run it, and has its answers ``judged``."""

    def verify(self, properties: Properties, on_result: Told) -> None:
        """Misclassified images are counterexamples; the others go out as files, in their order."""
        with torch.no_grad(), evaluation_mode(properties.network), TemporaryDirectory(prefix="steadynet-") as folder:
            files, left = Files(properties, Path(folder)), []
            for index in range(len(properties)):
                if not self._misclassified(properties, index, on_result):
                    left.append(index)
            if not left:
                return
            try:
                export_onnx(properties.network, tuple(properties.images.shape[1:]), files.model)
            except Exception as error:  # whatever broke is every property's error, not the verifier's
                for index in left:
                    on_result(index, broken(error))
                return
            self.decide(files, left, on_result)

    def _misclassified(self, properties: Properties, index: int, on_result: Told) -> bool:
        started, rows = time.perf_counter(), slice(index, index + 1)
        try:
            if not bool(misclassified(properties.network, properties.images[rows], properties.labels[rows])):
                return False
            found = Result(Verdict.SAT, time.perf_counter() - started, decided_by="misclassified")
            result = _refuted(properties, index, properties.images[index], found)
        except Exception as error:  # the other properties go on
            result = broken(error)
        if result is None:
            return False
        on_result(index, result)
        return True

    @abstractmethod
    def decide(self, files: Files, indices: list[int], on_result: Told) -> None:
        """Decide the properties with these indices, telling of each as soon as it is decided."""


def broken(error: BaseException, seconds: float = 0.0) -> Result:
    """The result of what raised this."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return Result(Verdict.ERROR, seconds, reason=text)


def judged(files: Files, index: int, values: NDArray[np.float64] | None, result: Result) -> Result:
    """The result of a tool, but ``sat`` only with a counterexample that replays."""
    if result.verdict is not Verdict.SAT:
        return result
    try:
        found = files.refuted(index, values, result)
    except Exception as error:  # the other properties go on
        return broken(error, result.seconds)
    if found is not None:
        return found
    what = "gave no counterexample" if values is None else "gave a counterexample that does not replay"
    return replace(result, verdict=Verdict.ERROR, reason=f"{result.decided_by} said sat, but {what}")
