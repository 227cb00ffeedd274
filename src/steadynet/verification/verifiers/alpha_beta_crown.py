"""α,β-CROWN (github.com/Verified-Intelligence/alpha-beta-CROWN), run from the user's own copy.

One process decides all properties, and its output is read line by line. It also saves its results as a pickle, which is
never opened. Its ``unsat`` is taken as it is. Its ``sat`` counts only with a counterexample that replays.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import numpy as np
import onnx

from steadynet.errors import UserError
from steadynet.plugins import setting
from steadynet.verification.processes import ExternalProgram, ProgramTimeoutError
from steadynet.verification.properties import Result, Verdict
from steadynet.verification.verifiers.base import OnResult
from steadynet.verification.verifiers.external import (
    CheckedResult,
    ExternalVerifier,
    PropertyFiles,
    SatCheck,
    check_sat,
    parse_counterexample,
)

SECONDS_TO_START = 300.0  # to import its libraries, or to go on to the next property; this time does not count
GRACE = 0.9  # seconds past the time-out in which it may still report it
LARGEST_COUNTEREXAMPLE = 64 * 2**20  # bytes
NETWORK = "network.onnx"
_PROPERTY_STARTS = re.compile(r"\s*%{10,} idx: (\d+), vnnlib ID: \d+ %{10,}\s*")
_PROPERTY_ENDS = re.compile(r"Result: (\S.*) in (\d+\.?\d*) seconds\s*")


@dataclass(frozen=True, kw_only=True)
class AlphaBetaCrown(ExternalVerifier):
    """α,β-CROWN. The time of a property is the one that α,β-CROWN prints, without the start of the program."""

    name = "alpha_beta_crown"
    summary = "α,β-CROWN, your own copy, all properties in one process"

    abcrown_home: str | None = setting(None, "folder of your copy of α,β-CROWN (default: $ABCROWN_HOME)")
    abcrown_python: str | None = setting(None, "the Python that runs it (default: $ABCROWN_PYTHON, or python3)")
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
        if not any(path.is_file() for path in _main_files(home)):
            raise UserError(f"{home} is no copy of α,β-CROWN: it has no complete_verifier/abcrown.py")
        python = self.abcrown_python or os.environ.get("ABCROWN_PYTHON") or "python3"
        if shutil.which(python) is None:
            raise UserError(f"there is no {python} to run α,β-CROWN: --abcrown-python names its Python")
        if self.abcrown_config and not Path(self.abcrown_config).is_file():
            raise UserError(f"there is no {self.abcrown_config} to configure α,β-CROWN by")
        if self.abcrown_config and joins_alternatives(Path(self.abcrown_config).read_text(encoding="utf-8")):
            raise UserError(
                f"{self.abcrown_config}: with clip_in_alpha_crown, α,β-CROWN (December 2025) takes all ways to violate "
                "a property for one, and proves what is false. Add optimize_disjuncts_separately: true to solver, or "
                "leave clip_in_alpha_crown out"
            )
        object.__setattr__(self, "abcrown_home", str(Path(home).resolve()))
        object.__setattr__(self, "abcrown_python", python)

    def decide(self, files: PropertyFiles, indices: list[int], on_result: OnResult) -> None:
        """Decide all properties in one process, or in several if it crashes or must be killed.

        α,β-CROWN writes all counterexamples to the same file. If the next property has overwritten a counterexample
        before it was read, its property is decided again, alone.
        """
        write_with_batch_norms(files.model, files.folder / NETWORK)
        undecided, repeated = list(indices), []

        def report(index: int, checked: CheckedResult) -> None:
            undecided.remove(index)
            lost = checked.check in (SatCheck.NO_COUNTEREXAMPLE, SatCheck.DOES_NOT_REPLAY)
            if lost and len(indices) > 1:
                repeated.append(index)
            else:
                on_result(index, checked.result)

        while undecided:
            _Process(self, files, list(undecided), report).run()
        for index in repeated:
            self.decide(files, [index], on_result)


def write_with_batch_norms(source: Path, path: Path) -> None:
    """Write the same network with each addition or multiplication by one constant per channel as a batch norm.

    The bounds of α,β-CROWN for convolutions ("patches") fail on such additions and multiplications, but support batch
    norms.
    """
    model = onnx.load(source)
    constants = {entry.name: onnx.numpy_helper.to_array(entry) for entry in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {value.name: value.type.tensor_type.shape.dim for value in (*inferred.input, *inferred.value_info)}
    for position, node in enumerate(model.graph.node):
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
        model.graph.node[position].CopyFrom(norm)
    onnx.save(model, path)


def joins_alternatives(config: str) -> bool:
    """Whether a configuration clips in α-CROWN by the constraints of all margins at once, which is not sound.

    A robustness property is violated if one margin is negative. The release of December 2025 looks for inputs where all
    open margins are, finds none, and says "safe".

    >>> joins_alternatives("clip_in_alpha_crown: True"), joins_alternatives("clip_interm_domain:\\n  enabled: true")
    (True, False)
    """
    switched_on = {
        name: re.search(rf"^[^#\n]*\b{name}['\"]?\s*:\s*(true|yes|on)\b", config, re.IGNORECASE | re.MULTILINE)
        for name in ("clip_in_alpha_crown", "optimize_disjuncts_separately")
    }
    return bool(switched_on["clip_in_alpha_crown"] and not switched_on["optimize_disjuncts_separately"])


def _main_files(home: str) -> list[Path]:
    return [Path(home) / "complete_verifier" / "abcrown.py", Path(home) / "abcrown.py"]


class _Process:
    """One process of α,β-CROWN and the properties that it is given. It reports at least the first of them."""

    def __init__(
        self,
        verifier: AlphaBetaCrown,
        files: PropertyFiles,
        indices: list[int],
        report: Callable[[int, CheckedResult], None],
    ) -> None:
        self.verifier, self.files, self.indices, self.report = verifier, files, indices, report
        self.current: int | None = None  # the position, in ``indices``, of the property it works on
        self.since = time.perf_counter()  # when it began with that property, or ended the one before
        self.reported = 0  # properties are decided in their order, so this is the position of the next one
        self.counterexample = files.folder / "counterexample.txt"

    def run(self) -> None:
        """Run the process, and report each property when the line with its result is printed."""
        self.files.folder.joinpath("instances.csv").write_text(
            "".join(f"{NETWORK},{self.files.property(i).name},{self.verifier.timeout:g}\n" for i in self.indices),
            encoding="utf-8",
        )
        main_file = next(path for path in _main_files(self.verifier.abcrown_home or "") if path.is_file())
        command = [self.verifier.abcrown_python or sys.executable, str(main_file), *self._flags()]
        with ExternalProgram(command, main_file.parent, {"PYTHONUNBUFFERED": "1"}) as program:
            try:
                for line in program.lines(self._deadline):
                    self._read(line)
            except ProgramTimeoutError:
                self._timed_out()
                return
            error = program.last_error()
        if self.reported < len(self.indices):
            self._crashed(error)

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

    def _deadline(self) -> float:
        return self.since + (SECONDS_TO_START if self.current is None else self.verifier.timeout + GRACE)

    def _read(self, line: str) -> None:
        if found := _PROPERTY_STARTS.fullmatch(line):
            self.current, self.since = int(found[1]), time.perf_counter()
        elif (found := _PROPERTY_ENDS.fullmatch(line)) and self.current == self.reported < len(self.indices):
            result = read_result(found[1], float(found[2]), self.verifier.timeout)
            values = None
            if result.verdict is Verdict.SAT and self.counterexample.is_file():
                with self.counterexample.open(encoding="utf-8", errors="replace") as file:
                    values = parse_counterexample(file.read(LARGEST_COUNTEREXAMPLE))
                self.counterexample.unlink(missing_ok=True)
            self.current, self.since = None, time.perf_counter()
            self._report(check_sat(self.files, self.indices[self.reported], values, result))

    def _report(self, checked: CheckedResult) -> None:
        self.reported += 1
        self.report(self.indices[self.reported - 1], checked)

    def _timed_out(self) -> None:
        if self.current is None:
            self._crashed(f"it did not begin in {SECONDS_TO_START:g} s")
        else:
            seconds = time.perf_counter() - self.since
            self._report(CheckedResult(Result(Verdict.TIMEOUT, seconds, decided_by=self.verifier.name)))

    def _crashed(self, error: str) -> None:
        """Report an error for the property it worked on, or for all that are left if it worked on none."""
        reason = f"α,β-CROWN crashed: {error or 'no error message'}"
        last = len(self.indices) if self.current is None else self.reported + 1
        for _ in range(self.reported, last):
            self._report(CheckedResult(Result(Verdict.ERROR, 0.0, decided_by=self.verifier.name, reason=reason)))


class PrintedStatus(Enum):
    """What α,β-CROWN says of a property in the line with its result."""

    SAFE = auto()
    UNSAFE = auto()
    UNKNOWN = auto()
    TIMED_OUT = auto()
    OTHER = auto()  # words that no known release prints


def parse_status(words: str) -> PrintedStatus:
    """Parse the words that α,β-CROWN prints. This is the only place that knows them.

    >>> [parse_status(words).name for words in ("safe-incomplete", "unsafe-pgd", "unknown", "safe (timed out)", "?")]
    ['SAFE', 'UNSAFE', 'UNKNOWN', 'TIMED_OUT', 'OTHER']
    """
    if "timed out" in words:
        return PrintedStatus.TIMED_OUT
    prefixes = {"safe": PrintedStatus.SAFE, "unsafe": PrintedStatus.UNSAFE, "unknown": PrintedStatus.UNKNOWN}
    word = words.split()[0].lower()
    return next((status for prefix, status in prefixes.items() if word.startswith(prefix)), PrintedStatus.OTHER)


def read_result(words: str, seconds: float, timeout: float) -> Result:
    """Return what α,β-CROWN printed as a result. Its ``unknown`` is a time-out if its time was over.

    >>> [read_result(words, 3.0, timeout=9.0).verdict.value for words in ("safe", "unsafe-bab", "unknown", "?")]
    ['unsat', 'sat', 'unknown', 'error']
    >>> read_result("unknown", 9.2, timeout=9.0).verdict.value
    'timeout'
    """
    status, name = parse_status(words), AlphaBetaCrown.name
    if status is PrintedStatus.UNKNOWN and seconds >= 0.99 * timeout:
        status = PrintedStatus.TIMED_OUT
    if status is PrintedStatus.TIMED_OUT:
        return Result(Verdict.TIMEOUT, max(seconds, timeout), decided_by=name)
    if status is PrintedStatus.UNKNOWN:
        return Result(Verdict.UNKNOWN, seconds, decided_by=name, reason="α,β-CROWN gave up")
    if status is PrintedStatus.OTHER:
        return Result(Verdict.ERROR, seconds, decided_by=name, reason=f"α,β-CROWN said {words[:60]!r}")
    return Result(Verdict.UNSAT if status is PrintedStatus.SAFE else Verdict.SAT, seconds, decided_by=name)
