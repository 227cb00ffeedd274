"""Marabou, an independent complete verifier (``pip install "steadynet[marabou]"``).

One query a margin. Marabou computes with tolerances, so its ``unsat`` is Marabou's word; its ``sat`` counts only with a
counterexample that replays.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from steadynet.errors import UserError
from steadynet.verification.processes import ExternalProgram, OverdueError
from steadynet.verification.properties import Result, Verdict
from steadynet.verification.verifiers import marabou_queries
from steadynet.verification.verifiers.external import Files, Outside, Told, judged

GRACE = 1.0  # seconds; the process keeps the time itself
TO_READ = 600.0  # seconds to start and read the network, which do not count


@dataclass(frozen=True, kw_only=True)
class Marabou(Outside):
    """All properties in one process, each in a fork of its own; start and reading of the network do not count."""

    name = "marabou"
    summary = "Marabou, an independent complete verifier with tolerances; for small networks"

    def __post_init__(self) -> None:
        super().__post_init__()
        if importlib.util.find_spec("maraboupy") is None:
            raise UserError('Marabou is not installed: pip install "steadynet[marabou]" (Python 3.8 to 3.11)')

    def decide(self, files: Files, indices: list[int], on_result: Told) -> None:
        """Take up each line as it comes; whatever has none when the process is gone is an error."""
        self._write_task(files, indices)
        left, reason, end = list(indices), "", [time.perf_counter() + TO_READ]
        command = [sys.executable, marabou_queries.__file__, str(files.folder)]
        with ExternalProgram(command, files.folder) as program:
            try:
                for line in program.lines(lambda: end[0]):
                    said = json.loads(line)
                    end[0], reason = time.perf_counter() + self.timeout + GRACE, said.get("error", reason)
                    if "row" in said:
                        index = indices[said["row"]]
                        left.remove(index)
                        on_result(index, self._result(files, index, said))
            except OverdueError:
                reason = "Marabou's process hangs"
            reason = reason or f"Marabou's process ended: {program.complaint() or 'no word why'}"
        for index in left:
            on_result(index, Result(Verdict.ERROR, 0.0, decided_by=self.name, reason=reason))

    def _write_task(self, files: Files, indices: list[int]) -> None:
        properties = files.properties
        region, labels = (
            properties.region[torch.tensor(indices, device=properties.images.device)],
            properties.labels[indices],
        )
        lower, upper = (corner.flatten(1).double().cpu().numpy() for corner in (region.lower, region.upper))
        likely = properties.network(properties.images[indices]).argsort(
            1, descending=True
        )  # a counterexample comes soon
        others = [
            [other for other in row.tolist() if other != label] for row, label in zip(likely, labels, strict=True)
        ]
        np.savez(
            files.folder / "task.npz", lower=lower, upper=upper, labels=labels.cpu().numpy(), others=np.array(others),
            seconds=self.timeout,
        )  # fmt: skip

    def _result(self, files: Files, index: int, said: dict[str, Any]) -> Result:
        result = Result(Verdict(said["verdict"]), said["seconds"], decided_by=self.name, reason=said.get("reason", ""))
        for values in said.get("values", []):
            found = judged(files, index, np.array(values), result)
            if found.verdict is Verdict.SAT or not found.reason.endswith("does not replay"):
                return found
            result = replace(found, verdict=Verdict.SAT)
        if result.verdict is Verdict.SAT:  # within its tolerances, but not within the network's rounding
            return replace(result, verdict=Verdict.UNKNOWN)
        return result
