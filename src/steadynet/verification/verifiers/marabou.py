"""Marabou, an independent complete verifier (``pip install "steadynet[marabou]"``).

Marabou decides one query per margin. It computes with tolerances, and its ``unsat`` is taken as it is. Its ``sat``
counts only with a counterexample that replays.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from steadynet.errors import UserError
from steadynet.graph.piecewise_linear import require_piecewise_linear
from steadynet.graph.trace import UnsupportedNetworkError
from steadynet.graph.translate import graph_of
from steadynet.verification.processes import ExternalProgram, ProgramTimeoutError
from steadynet.verification.properties import Reason, Result, Verdict
from steadynet.verification.verifiers import marabou_queries
from steadynet.verification.verifiers.base import OnResult
from steadynet.verification.verifiers.external import (
    ExternalVerifier,
    PropertyFiles,
    SatCheck,
    check_sat,
    error_result,
)
from steadynet.verification.verifiers.marabou_queries import Message, PropertyAnswer

GRACE = 1.0  # seconds; the process itself keeps to the time-out
SECONDS_TO_READ = 600.0  # to start and to read the network; this time does not count


@dataclass(frozen=True, kw_only=True)
class Marabou(ExternalVerifier):
    """Marabou, in one process that forks once per property. Its start and its reading of the network do not count."""

    name = "marabou"
    summary = "Marabou, an independent complete verifier with tolerances; for small networks"

    def __post_init__(self) -> None:
        super().__post_init__()
        if importlib.util.find_spec("maraboupy") is None:
            raise UserError('Marabou is not installed: pip install "steadynet[marabou]" (Python 3.8 to 3.11)')

    def decide(self, files: PropertyFiles, indices: list[int], on_result: OnResult) -> None:
        """Report each property when its line is printed. Those without a line when the process ends are errors."""
        shape = tuple(files.properties.images.shape[1:])
        try:
            require_piecewise_linear(graph_of(files.properties.network, shape), self.name)
        except UnsupportedNetworkError as error:
            for index in indices:
                on_result(index, error_result(error))
            return
        self._write_queries(files, indices)
        undecided, reason = list(indices), ""
        deadline = time.perf_counter() + SECONDS_TO_READ
        command = [sys.executable, marabou_queries.__file__, str(files.folder)]
        with ExternalProgram(command, files.folder) as program:
            try:
                for line in program.lines(lambda: deadline):  # noqa: B023 (each line moves it)
                    deadline = time.perf_counter() + self.timeout + GRACE
                    message = Message.from_line(line)
                    reason = message.error or reason
                    if message.answer is not None:
                        index = indices[message.row]
                        undecided.remove(index)
                        on_result(index, self._result(files, index, message.answer, message.seconds))
            except ProgramTimeoutError:
                reason = "Marabou's process hangs"
            reason = reason or f"Marabou's process ended: {program.last_error() or 'no error message'}"
        for index in undecided:
            on_result(index, Result(Verdict.ERROR, 0.0, decided_by=self.name, reason=reason))

    def _write_queries(self, files: PropertyFiles, indices: list[int]) -> None:
        properties = files.properties
        region = properties.region[torch.tensor(indices, device=properties.images.device)]
        labels = properties.labels[indices]
        # The most likely other class comes first, so that a counterexample is found soon.
        ranked = properties.network(properties.images[indices]).argsort(1, descending=True)
        others = [
            [other for other in row.tolist() if other != label] for row, label in zip(ranked, labels, strict=True)
        ]
        np.savez(
            files.folder / marabou_queries.QUERIES,
            lower=region.lower.flatten(1).double().cpu().numpy(),
            upper=region.upper.flatten(1).double().cpu().numpy(),
            labels=labels.cpu().numpy(),
            others=np.array(others),
            seconds=self.timeout,
        )

    def _result(self, files: PropertyFiles, index: int, answer: PropertyAnswer, seconds: float) -> Result:
        result = Result(Verdict(answer.verdict), seconds, decided_by=self.name, reason=answer.reason)
        if result.verdict is not Verdict.SAT:
            return result
        for point in answer.points:
            checked = check_sat(files, index, np.array(point), result)
            if checked.check is not SatCheck.DOES_NOT_REPLAY:
                return checked.result
        # The point is a counterexample within Marabou's tolerances, but not within the network's rounding.
        return replace(result, verdict=Verdict.UNKNOWN, reason=Reason.ZERO_MARGIN)
