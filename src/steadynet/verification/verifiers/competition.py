"""Any tool of the verification competition (VNN-COMP), run through the competition's interface.

A tool is a folder that has, itself or in ``vnncomp_scripts``, the script
``run_instance.sh v1 CATEGORY ONNX VNNLIB RESULT TIMEOUT``. The first line of the file RESULT is the tool's verdict, and
after ``sat`` follows a counterexample. If there is a ``prepare_instance.sh``, it is run first, and its time does not
count.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from steadynet.errors import UserError
from steadynet.plugins import setting
from steadynet.verification.processes import ExternalProgram, ProgramTimeoutError
from steadynet.verification.properties import Result, Verdict
from steadynet.verification.verifiers.base import OnResult
from steadynet.verification.verifiers.external import (
    ExternalVerifier,
    PropertyFiles,
    check_sat,
    error_result,
    parse_counterexample,
)

RUN_SCRIPT, PREPARE_SCRIPT = "run_instance.sh", "prepare_instance.sh"
LARGEST_RESULT = 64 * 2**20  # bytes
SECONDS_TO_PREPARE = 600.0
GRACE = 0.4  # seconds past the time-out in which a tool may still report it
VERDICT_WORDS = {
    "sat": Verdict.SAT,
    "violated": Verdict.SAT,
    "unsat": Verdict.UNSAT,
    "holds": Verdict.UNSAT,
    "timeout": Verdict.TIMEOUT,
    "unknown": Verdict.UNKNOWN,
}


@dataclass(frozen=True)
class ScriptRun:
    """How one call of a script ended: in time and without ``failure``, or not."""

    seconds: float
    timed_out: bool = False
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Competition(ExternalVerifier):
    """A tool of the competition, with one process per property.

    Its proofs are taken as they are. Its counterexamples must replay.
    """

    name = "competition"
    summary = "any VNN-COMP tool (nnenum, NeuralSAT, PyRAT, …) through its run_instance.sh"

    tool: str | None = setting(None, "folder with the tool's run_instance.sh (default: $COMPETITION_TOOL)")
    category: str = setting("test", "benchmark category that is passed to the tool")

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.tool or os.environ.get("COMPETITION_TOOL")
        if not given:
            raise UserError(
                "which tool? Get one of VNN-COMP's (github.com/VNN-COMP lists them) and name its folder with "
                "run_instance.sh: --tool FOLDER, or COMPETITION_TOOL=FOLDER"
            )
        for folder in (Path(given), Path(given) / "vnncomp_scripts"):
            if (folder / RUN_SCRIPT).is_file():
                object.__setattr__(self, "tool", str(folder.resolve()))
                return
        raise UserError(f"{given} is no tool of the competition: it has no {RUN_SCRIPT}, nor has its vnncomp_scripts")

    def decide(self, files: PropertyFiles, indices: list[int], on_result: OnResult) -> None:
        """Run the tool once per property, one after the other."""
        disable_kill_commands(files.folder)
        for index in indices:
            started = time.perf_counter()
            try:
                result = self._decide(files, index)
            except Exception as error:  # the other properties must still be decided
                result = error_result(error, time.perf_counter() - started)
            on_result(index, result)

    def _decide(self, files: PropertyFiles, index: int) -> Result:
        arguments = ["v1", self.category, str(files.model), str(files.property(index))]
        if (self._folder / PREPARE_SCRIPT).is_file():
            prepared = self._run(files, PREPARE_SCRIPT, arguments, SECONDS_TO_PREPARE)
            if prepared.timed_out:
                return self._result(Verdict.ERROR, prepared.seconds, f"{PREPARE_SCRIPT} took too long")
            if prepared.failure:
                return self._result(Verdict.ERROR, prepared.seconds, prepared.failure)
        result_file = files.folder / f"{index}.result"
        arguments += [str(result_file), f"{self.timeout:g}"]
        done = self._run(files, RUN_SCRIPT, arguments, self.timeout + GRACE)
        if done.timed_out:
            return self._result(Verdict.TIMEOUT, done.seconds)
        if done.failure:
            return self._result(Verdict.ERROR, done.seconds, done.failure)
        return self._read(files, index, result_file, done.seconds)

    def _run(self, files: PropertyFiles, script: str, arguments: list[str], limit: float) -> ScriptRun:
        """Run a script of the tool for at most ``limit`` seconds."""
        started = time.perf_counter()
        path = f"{_kill_commands(files.folder)}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {"PATH": path, "ABCROWN_TEST_RUN": "1"}
        command = ["bash", str(self._folder / script), *arguments]
        with ExternalProgram(command, self._folder, environment, read_output=False) as program:
            try:
                code = program.wait(started + limit)
            except ProgramTimeoutError:
                return ScriptRun(time.perf_counter() - started, timed_out=True)
            seconds = time.perf_counter() - started
            if code:
                error = program.last_error() or "no error message"
                return ScriptRun(seconds, failure=f"{script} ended with {code}: {error}")
            return ScriptRun(seconds)

    def _read(self, files: PropertyFiles, index: int, result_file: Path, seconds: float) -> Result:
        if not result_file.is_file():
            return self._result(Verdict.ERROR, seconds, f"{RUN_SCRIPT} wrote no result")
        if result_file.stat().st_size > LARGEST_RESULT:
            return self._result(Verdict.ERROR, seconds, f"its result is larger than {LARGEST_RESULT >> 20} MiB")
        word, _, rest = result_file.read_text(encoding="utf-8", errors="replace").strip().partition("\n")
        verdict = VERDICT_WORDS.get(word.strip().lower())
        if verdict is None:
            return self._result(Verdict.ERROR, seconds, f"its result is {word.strip()[:60]!r}, which is no verdict")
        seconds = max(seconds, self.timeout) if verdict is Verdict.TIMEOUT else seconds
        return check_sat(files, index, parse_counterexample(rest), self._result(verdict, seconds)).result

    def _result(self, verdict: Verdict, seconds: float, reason: str = "") -> Result:
        return Result(verdict, seconds, decided_by=self._tool_name, reason=reason)

    @property
    def _folder(self) -> Path:
        return Path(self.tool or "")

    @property
    def _tool_name(self) -> str:
        folder = self._folder
        return folder.parent.name if folder.name == "vnncomp_scripts" else folder.name


def disable_kill_commands(folder: Path) -> None:
    """Write a ``killall`` and a ``pkill`` that do nothing, for the tool's search path.

    In the competition a tool has the machine to itself, and many scripts begin by killing every Python process. That
    would end this process, too.
    """
    for name in ("killall", "pkill"):
        path = _kill_commands(folder) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        path.chmod(0o755)


def _kill_commands(folder: Path) -> Path:
    return folder / "protected"
