"""Processes that take training steps in turn: each has threads, memory and an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from steadynet.training.idle_threads import WAIT_SETTINGS

CHILD = "from stepper import take_steps; take_steps({form!r}, {model!r}, {batch}, {threads})"


class Step(NamedTuple):
    """What one step took."""

    seconds: float
    cpu_seconds: float


class Stepper:
    """A process that takes steps of one form when it is told to."""

    def __init__(
        self, form: str, model: str, *, batch: int = 128, threads: int = 1, environment: Mapping[str, str] | None = None
    ) -> None:
        code = CHILD.format(form=form, model=model, batch=batch, threads=threads)
        kept = {name: value for name, value in os.environ.items() if name not in (*WAIT_SETTINGS, "OMP_NUM_THREADS")}
        kept |= {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])} | dict(environment or {})
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], env=kept, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def take(self, count: int) -> list[Step]:
        """Take some steps."""
        words = self._ask(str(count))
        return [Step(float(seconds), float(cpu)) for seconds, cpu in (word.split("/") for word in words)]

    def peak_memory(self) -> float:
        """MiB that the steps needed at their peak, beyond what was there before (Linux only)."""
        return float(self._ask("memory")[0])

    def _ask(self, line: str) -> list[str]:
        assert self.process.stdin
        assert self.process.stdout
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().split()

    def end(self) -> None:
        """End the process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def in_turn(steppers: Mapping[str, Stepper], rounds: int, steps: int = 1) -> dict[str, list[Step]]:
    """Let every process take some steps, again and again."""
    taken: dict[str, list[Step]] = {name: [] for name in steppers}
    for _ in range(rounds):
        for name, stepper in steppers.items():
            taken[name] += stepper.take(steps)
    return taken


def take_steps(form: str, model: str, batch: int, threads: int) -> None:
    """What the process does: it answers every line of its standard input."""
    import torch

    from training_step import step_of

    torch.set_num_threads(threads)
    step = step_of(form, model, batch)
    before = _start_of_peak()
    for line in sys.stdin:
        if line.strip() == "memory":
            print((_status("VmHWM") - before) / 1024, flush=True)
            continue
        taken = []
        for _ in range(int(line)):
            started = time.perf_counter(), time.process_time()
            step()
            taken.append(f"{time.perf_counter() - started[0]}/{time.process_time() - started[1]}")
        print(*taken, flush=True)


def _start_of_peak() -> int:
    """Forget the peak of the memory so far; return what is used now, in KiB."""
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    if sys.platform != "linux":
        return 0
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) if found else 0
