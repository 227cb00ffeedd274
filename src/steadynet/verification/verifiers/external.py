"""What verifiers that run an external program share: writing property files, and checking counterexamples."""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from dataclasses import dataclass, replace
from enum import Enum, auto
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
from steadynet.verification.properties import DecidedBy, Properties, Result, Verdict, is_counterexample
from steadynet.verification.verifiers.base import OnResult, Verifier

_INPUT_VALUE = re.compile(r"\(\s*X_(\d{1,9})\s+([^\s()]{1,60})\s*\)")


@dataclass(frozen=True)
class PropertyFiles:
    """Properties as files in a folder of their own: ``model.onnx`` and one ``<index>.vnnlib`` per property."""

    properties: Properties
    folder: Path

    @property
    def model(self) -> Path:
        """The network's file."""
        return self.folder / "model.onnx"

    def property(self, index: int) -> Path:
        """Return the file of one property, which is written on the first call."""
        path = self.folder / f"{index}.vnnlib"
        if not path.is_file():
            region, label = self.properties.region, int(self.properties.labels[index])
            write_robustness(path, region.lower[index], region.upper[index], label, self._class_count())
        return path

    def _class_count(self) -> int:
        with torch.no_grad():
            return int(self.properties.network(self.properties.images[:1]).shape[1])


class ExternalVerifier(Verifier):
    """A verifier that hands its properties to an external program as files.

    A subclass runs the program in :meth:`decide`, and passes each result through :func:`check_sat`.
    """

    def verify(self, properties: Properties, on_result: OnResult) -> None:
        """Refute the misclassified images, then write the network and let :meth:`decide` handle the others."""
        with torch.no_grad(), evaluation_mode(properties.network), TemporaryDirectory(prefix="steadynet-") as folder:
            files, remaining = PropertyFiles(properties, Path(folder)), []
            for index in range(len(properties)):
                result = _misclassified(properties, index)
                if result is None:
                    remaining.append(index)
                else:
                    on_result(index, result)
            if not remaining:
                return
            try:
                export_onnx(properties.network, tuple(properties.images.shape[1:]), files.model)
            except Exception as error:  # a network that cannot be exported is an error of each property
                for index in remaining:
                    on_result(index, error_result(error))
                return
            self.decide(files, remaining, on_result)

    @abstractmethod
    def decide(self, files: PropertyFiles, indices: list[int], on_result: OnResult) -> None:
        """Decide the properties with these indices, and report each to ``on_result`` as soon as it is decided."""


def _misclassified(properties: Properties, index: int) -> Result | None:
    """Return a ``sat`` result if the image itself has the wrong label."""
    started, rows = time.perf_counter(), slice(index, index + 1)
    try:
        if not bool(misclassified(properties.network, properties.images[rows], properties.labels[rows])):
            return None
        result = Result(Verdict.SAT, time.perf_counter() - started, decided_by=DecidedBy.MISCLASSIFIED)
        return _with_counterexample(properties, index, properties.images[index], result)
    except Exception as error:  # the other properties must still be decided
        return error_result(error)


def error_result(error: BaseException, seconds: float = 0.0) -> Result:
    """Return the result of a property whose verification raised this error."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return Result(Verdict.ERROR, seconds, reason=text)


class SatCheck(Enum):
    """The outcome of :func:`check_sat`."""

    NOT_SAT = auto()  # the program did not say sat, so there was nothing to check
    CONFIRMED = auto()  # the counterexample replays
    NO_COUNTEREXAMPLE = auto()  # the program gave none, or none that can be read
    DOES_NOT_REPLAY = auto()  # the network gives the counterexample the right label
    FAILED = auto()  # replaying it raised an error


@dataclass(frozen=True)
class CheckedResult:
    """A result that :func:`check_sat` has checked, and what the check found."""

    result: Result
    check: SatCheck = SatCheck.NOT_SAT


def check_sat(files: PropertyFiles, index: int, values: NDArray[np.float64] | None, result: Result) -> CheckedResult:
    """Check the result of an external program: its ``sat`` counts only with a counterexample that replays.

    Args:
        files: The properties that the program was given.
        index: The property that this result is about.
        values: The program's counterexample as a flat array, or None if there is none.
        result: The result without its counterexample.

    Returns:
        The result, with the counterexample rounded into the region if it replays. A ``sat`` whose counterexample
        is missing or does not replay becomes an ``error``.
    """
    if result.verdict is not Verdict.SAT:
        return CheckedResult(result)
    if values is None:
        return CheckedResult(_rejected(result, "gave no counterexample"), SatCheck.NO_COUNTEREXAMPLE)
    try:
        point = _point(files.properties, index, values)
        confirmed = None if point is None else _with_counterexample(files.properties, index, point, result)
    except Exception as error:  # the other properties must still be decided
        return CheckedResult(error_result(error, result.seconds), SatCheck.FAILED)
    if confirmed is None:
        return CheckedResult(_rejected(result, "gave a counterexample that does not replay"), SatCheck.DOES_NOT_REPLAY)
    return CheckedResult(confirmed, SatCheck.CONFIRMED)


def _point(properties: Properties, index: int, values: NDArray[np.float64]) -> Tensor | None:
    """Return the values as an input of the region, or None if they cannot be one."""
    region = properties.region[index : index + 1]
    if values.size != region.lower.numel() or not np.isfinite(values).all():
        return None
    return region.project(torch.from_numpy(values).reshape(region.lower.shape).to(region.lower))[0]


def _with_counterexample(properties: Properties, index: int, point: Tensor, result: Result) -> Result | None:
    if not is_counterexample(properties, index, point):
        return None
    return replace(result, counterexample=point.clone(), reason="")


def _rejected(result: Result, why: str) -> Result:
    return replace(result, verdict=Verdict.ERROR, reason=f"{result.decided_by} said sat, but {why}")


def parse_counterexample(text: str) -> NDArray[np.float64] | None:
    """Read the inputs of a counterexample in the form of VNN-COMP; None if they are incomplete or no numbers.

    >>> parse_counterexample("((X_1 0.5)\\n(X_0 -1e-3)\\n(Y_0 7))").tolist()
    [-0.001, 0.5]
    """
    try:
        found = {int(index): float(value) for index, value in _INPUT_VALUE.findall(text)}
    except ValueError:
        return None
    if not found or max(found) != len(found) - 1:
        return None
    return np.array([found[index] for index in range(len(found))])
