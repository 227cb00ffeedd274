"""Any tool of the verification competition (VNN-COMP), through the competition's own contract.

A tool is a folder, or its ``vnncomp_scripts``, with ``run_instance.sh v1 CATEGORY ONNX VNNLIB RESULT TIMEOUT``. The
first line of RESULT is its verdict; with ``sat`` comes a counterexample. ``prepare_instance.sh``, where there is one,
is called before, and its time does not count.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from steadynet.errors import UserError
from steadynet.plugins import setting
from steadynet.verification.processes import ExternalProgram, OverdueError
from steadynet.verification.properties import Result, Verdict
from steadynet.verification.verifiers.external import Files, Outside, Told, broken, judged, read_values

SCRIPT, PREPARATION = "run_instance.sh", "prepare_instance.sh"
LARGEST_ANSWER = 64 * 2**20  # bytes
TO_PREPARE = 600.0  # seconds
GRACE = 0.4  # seconds that a tool may take to say that its time is over
WORDS = {
    "sat": Verdict.SAT,
    "violated": Verdict.SAT,
    "unsat": Verdict.UNSAT,
    "holds": Verdict.UNSAT,
    "timeout": Verdict.TIMEOUT,
    "unknown": Verdict.UNKNOWN,
}


@dataclass(frozen=True, kw_only=True)
class Competition(Outside):
    """A tool of the competition, a process a property; its proof is its own word, its counterexample is replayed."""

    name = "competition"
    summary = "any VNN-COMP tool (nnenum, NeuralSAT, PyRAT, …) through its run_instance.sh"

    tool: str | None = setting(None, "folder with the tool's run_instance.sh; COMPETITION_TOOL unless given")
    category: str = setting("test", "benchmark category that the tool is told")

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.tool or os.environ.get("COMPETITION_TOOL")
        if not given:
            raise UserError(
                "which tool? Get one of VNN-COMP's (github.com/VNN-COMP lists them) and name its folder with "
                "run_instance.sh: --tool FOLDER, or COMPETITION_TOOL=FOLDER"
            )
        for folder in (Path(given), Path(given) / "vnncomp_scripts"):
            if (folder / SCRIPT).is_file():
                object.__setattr__(self, "tool", str(folder.resolve()))
                return
        raise UserError(f"{given} is no tool of the competition: it has no {SCRIPT}, nor has its vnncomp_scripts")

    def decide(self, files: Files, indices: list[int], on_result: Told) -> None:
        """One process after the other."""
        protect(files.folder)
        for index in indices:
            started = time.perf_counter()
            try:
                result = self._decide(files, index)
            except Exception as error:  # the other properties go on
                result = broken(error, time.perf_counter() - started)
            on_result(index, result)

    def _decide(self, files: Files, index: int) -> Result:
        answer, told = files.folder / f"{index}.result", ["v1", self.category, str(files.model)]
        told.append(str(files.property(index)))
        if (self._folder / PREPARATION).is_file():
            seconds, problem = self._run(files, PREPARATION, told, TO_PREPARE)
            if problem:
                reason = "took too long" if problem is Verdict.TIMEOUT else problem
                return self._result(Verdict.ERROR, seconds, f"{PREPARATION} {reason}")
        answer.unlink(missing_ok=True)
        seconds, problem = self._run(files, SCRIPT, [*told, str(answer), f"{self.timeout:g}"], self.timeout + GRACE)
        if problem is Verdict.TIMEOUT:
            return self._result(Verdict.TIMEOUT, seconds, "")
        if problem:
            return self._result(Verdict.ERROR, seconds, f"{SCRIPT} {problem}")
        return self._read(files, index, answer, seconds)

    def _read(self, files: Files, index: int, answer: Path, seconds: float) -> Result:
        if not answer.is_file():
            return self._result(Verdict.ERROR, seconds, f"{SCRIPT} wrote no result")
        if answer.stat().st_size > LARGEST_ANSWER:
            return self._result(Verdict.ERROR, seconds, f"its result is larger than {LARGEST_ANSWER >> 20} MiB")
        word, _, rest = answer.read_text(encoding="utf-8", errors="replace").strip().partition("\n")
        verdict = WORDS.get(word.strip().lower())
        if verdict is None:
            return self._result(Verdict.ERROR, seconds, f"its result is {word.strip()[:60]!r}, which is no verdict")
        seconds = max(seconds, self.timeout) if verdict is Verdict.TIMEOUT else seconds
        return judged(files, index, read_values(rest), self._result(verdict, seconds, ""))

    def _run(self, files: Files, script: str, told: list[str], limit: float) -> tuple[float, str | Verdict]:
        """How long a script took, and what went wrong, if anything did: it was overdue, or what it complained of."""
        started = time.perf_counter()
        search = f"{files.folder / 'protected'}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {"PATH": search, "ABCROWN_TEST_RUN": "1"}
        with ExternalProgram(
            ["bash", str(self._folder / script), *told], self._folder, environment, heard=False
        ) as program:
            try:
                code = program.wait(started + limit)
            except OverdueError:
                return time.perf_counter() - started, Verdict.TIMEOUT
            seconds = time.perf_counter() - started
            return seconds, f"ended with {code}: {program.complaint() or 'no word why'}" if code else ""

    def _result(self, verdict: Verdict, seconds: float, reason: str) -> Result:
        return Result(verdict, seconds, decided_by=self._title, reason=reason)

    @property
    def _folder(self) -> Path:
        return Path(self.tool or "")

    @property
    def _title(self) -> str:
        folder = self._folder
        return folder.parent.name if folder.name == "vnncomp_scripts" else folder.name


def protect(folder: Path) -> None:
    """Put a ``killall`` and a ``pkill`` that do nothing into ``folder/protected``.

    The competition's scripts own their machine: many begin by killing every Python there is, this one included.
    """
    for name in ("killall", "pkill"):
        path = folder / "protected" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        path.chmod(0o755)
