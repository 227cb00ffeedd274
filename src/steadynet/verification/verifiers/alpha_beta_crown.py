"""α,β-CROWN, the user's own copy (github.com/Verified-Intelligence/alpha-beta-CROWN), run as it is.

All properties go through one process; its lines are read as they come. It saves its results as a pickle, which is never
opened. Its ``unsat`` is its own word; its ``sat`` counts only with a counterexample that replays.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from steadynet.errors import UserError
from steadynet.plugins import setting
from steadynet.verification.processes import ExternalProgram, OverdueError
from steadynet.verification.properties import Result, Verdict
from steadynet.verification.verifiers.external import Files, Outside, Told, judged, read_values

TO_START = 300.0  # seconds to import all it needs, which do not count
GRACE = 0.9  # seconds that it may take to notice that its time is over
LARGEST_ANSWER = 64 * 2**20  # bytes
NETWORK = "network.onnx"
_STARTS = re.compile(r"\s*%{10,} idx: (\d+), vnnlib ID: \d+ %{10,}\s*")
_ENDS = re.compile(r"Result: (\S.*) in (\d+\.?\d*) seconds\s*")


@dataclass(frozen=True, kw_only=True)
class AlphaBetaCrown(Outside):
    """Each property's time is the one that α,β-CROWN prints; its start is not counted."""

    name = "alpha_beta_crown"
    summary = "α,β-CROWN, your own copy, all properties in one process"

    abcrown_home: str | None = setting(None, "folder of your copy of α,β-CROWN; ABCROWN_HOME unless given")
    abcrown_python: str | None = setting(None, "the Python it runs in; ABCROWN_PYTHON or python3 unless given")
    abcrown_config: str | None = setting(None, "a configuration (YAML) of yours that it starts from")
    abcrown_device: str = setting("cpu", "cpu or cuda, for α,β-CROWN")

    def __post_init__(self) -> None:
        super().__post_init__()
        home = self.abcrown_home or os.environ.get("ABCROWN_HOME")
        if not home:
            raise UserError(
                "where is α,β-CROWN? Install it (github.com/Verified-Intelligence/alpha-beta-CROWN) and name its "
                "folder: --abcrown-home FOLDER, or ABCROWN_HOME=FOLDER"
            )
        if not any(path.is_file() for path in _programs(home)):
            raise UserError(f"{home} is no copy of α,β-CROWN: it has no complete_verifier/abcrown.py")
        python = self.abcrown_python or os.environ.get("ABCROWN_PYTHON") or "python3"
        if shutil.which(python) is None:
            raise UserError(f"there is no {python} to run α,β-CROWN: --abcrown-python names its Python")
        if self.abcrown_config and not Path(self.abcrown_config).is_file():
            raise UserError(f"there is no {self.abcrown_config} to configure α,β-CROWN by")
        object.__setattr__(self, "abcrown_home", str(Path(home).resolve()))
        object.__setattr__(self, "abcrown_python", python)

    def decide(self, files: Files, indices: list[int], on_result: Told) -> None:
        """All in one process; after a crash or a kill the rest in another.

        There is one file for all counterexamples: where the next property's has overwritten one before it was read, the
        property is asked again, alone.
        """
        write_with_batch_norms(files.model, files.folder / NETWORK)
        left, again = list(indices), []

        def tell(index: int, result: Result) -> None:
            left.remove(index)
            if len(indices) > 1 and result.verdict is Verdict.ERROR and " said sat, but " in result.reason:
                again.append(index)
            else:
                on_result(index, result)

        while left:
            _Process(self, files, list(left)).run(tell)
        for index in again:
            self.decide(files, [index], on_result)


def write_with_batch_norms(source: Path, path: Path) -> None:
    """The same network, but constants that images are multiplied by or added to, a number a channel, as batch norms.

    α,β-CROWN's bounds of convolutions ("patches") break on such products and sums, and know batch norms.
    """
    model = onnx.load(source)
    constants = {entry.name: onnx.numpy_helper.to_array(entry) for entry in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {value.name: value.type.tensor_type.shape.dim for value in (*inferred.input, *inferred.value_info)}
    for place, node in enumerate(model.graph.node):
        if node.op_type not in ("Add", "Mul") or node.input[1] not in constants or len(shapes[node.input[0]]) != 4:
            continue
        value = constants[node.input[1]]
        if value.size > 1 and value.shape[-2:] != (1, 1):
            continue
        channel = np.broadcast_to(value.reshape(-1), shapes[node.input[0]][1].dim_value)
        zero, one = np.zeros_like(channel), np.ones_like(channel)
        scale, bias = (channel, zero) if node.op_type == "Mul" else (one, channel)
        names = [f"{node.name}_{name}" for name in ("scale", "bias", "mean", "variance")]
        for name, array in zip(names, (scale, bias, zero, one), strict=True):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(array), name))
        norm = onnx.helper.make_node("BatchNormalization", [node.input[0], *names], [node.output[0]], epsilon=0.0)
        model.graph.node[place].CopyFrom(norm)
    onnx.save(model, path)


def _programs(home: str) -> list[Path]:
    return [Path(home) / "complete_verifier" / "abcrown.py", Path(home) / "abcrown.py"]


class _Process:
    """One process and the properties it was given; tells of at least the first."""

    def __init__(self, verifier: AlphaBetaCrown, files: Files, indices: list[int]) -> None:
        self.verifier, self.files, self.indices = verifier, files, indices
        self.at: int | None = None  # the place of the property it works on
        self.since = time.perf_counter()
        self.told = 0
        self.counterexample = files.folder / "counterexample.txt"

    def run(self, on_result: Told) -> None:
        """Take up each line as it comes."""
        self.files.folder.joinpath("instances.csv").write_text(
            "".join(f"{NETWORK},{self.files.property(i).name},{self.verifier.timeout:g}\n" for i in self.indices),
            encoding="utf-8",
        )
        program_file = next(path for path in _programs(self.verifier.abcrown_home or "") if path.is_file())
        command = [self.verifier.abcrown_python or sys.executable, str(program_file), *self._flags()]
        with ExternalProgram(command, program_file.parent, {"PYTHONUNBUFFERED": "1"}) as program:
            try:
                for line in program.lines(self._end):
                    self._take(line, on_result)
            except OverdueError:
                self._overdue(on_result)
                return
            complaint = program.complaint()
        if self.told < len(self.indices):
            self._crashed(complaint, on_result)

    def _flags(self) -> list[str]:
        folder = self.files.folder
        config = Path(self.verifier.abcrown_config or folder / "config.yaml").resolve()
        if not self.verifier.abcrown_config:
            config.write_text("attack:\n  pgd_order: after\n", encoding="utf-8")  # bounds are cheaper than an attack
        return [
            *("--config", str(config)),
            *("--device", self.verifier.abcrown_device),
            *("--root_path", str(folder), "--csv_name", "instances.csv"),
            *("--results_file", str(folder / "results.pickle")),
            *("--timeout", f"{self.verifier.timeout:g}"),
            *("--save_adv_example", "--cex_path", str(self.counterexample)),
        ]

    def _end(self) -> float:
        return self.since + (TO_START if self.at is None else self.verifier.timeout + GRACE)

    def _take(self, line: str, on_result: Told) -> None:
        if found := _STARTS.fullmatch(line):
            self.at, self.since = int(found[1]), time.perf_counter()
        elif (found := _ENDS.fullmatch(line)) and self.at == self.told < len(self.indices):
            result = read_result(found[1], float(found[2]), self.verifier.timeout)
            values = None
            if result.verdict is Verdict.SAT and self.counterexample.is_file():
                with self.counterexample.open(encoding="utf-8", errors="replace") as file:
                    values = read_values(file.read(LARGEST_ANSWER))
                self.counterexample.unlink(missing_ok=True)
            self.at, self.since = None, time.perf_counter()
            self._tell(judged(self.files, self.indices[self.told], values, result), on_result)

    def _tell(self, result: Result, on_result: Told) -> None:
        self.told += 1
        on_result(self.indices[self.told - 1], result)

    def _overdue(self, on_result: Told) -> None:
        if self.at is None:
            self._crashed(f"it did not begin in {TO_START:g} s", on_result)
        else:
            seconds = time.perf_counter() - self.since
            self._tell(Result(Verdict.TIMEOUT, seconds, decided_by=self.verifier.name), on_result)

    def _crashed(self, complaint: str, on_result: Told) -> None:
        """The property it worked on is an error; where it worked on none, all are."""
        reason = f"α,β-CROWN crashed: {complaint or 'no word why'}"
        last = len(self.indices) if self.at is None else self.told + 1
        for _ in range(self.told, last):
            self._tell(Result(Verdict.ERROR, 0.0, decided_by=self.verifier.name, reason=reason), on_result)


def read_result(words: str, seconds: float, timeout: float) -> Result:
    """What α,β-CROWN says, as a result; its ``unknown`` is a time-out only if its time was over.

    >>> [read_result(words, 3.0, 9.0).verdict.value for words in ("safe-incomplete", "unsafe-pgd", "unknown", "?")]
    ['unsat', 'sat', 'unknown', 'error']
    >>> [read_result(words, 9.2, 9.0).verdict.value for words in ("safe (timed out)", "unknown")]
    ['timeout', 'timeout']
    """
    word, late = words.split()[0].lower(), seconds >= 0.99 * timeout
    by, reason = AlphaBetaCrown.name, ""
    if "timed out" in words or (late and word.startswith("unknown")):
        return Result(Verdict.TIMEOUT, max(seconds, timeout), decided_by=by)
    if word.startswith("unsafe"):
        verdict = Verdict.SAT
    elif word.startswith("safe"):
        verdict = Verdict.UNSAT
    elif word.startswith("unknown"):
        verdict, reason = Verdict.UNKNOWN, "α,β-CROWN gave up"
    else:
        verdict, reason = Verdict.ERROR, f"α,β-CROWN said {words[:60]!r}"
    return Result(verdict, seconds, decided_by=by, reason=reason)
