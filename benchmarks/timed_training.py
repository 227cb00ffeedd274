"""A training in a process of its own with one thread, so that its CPU minutes count it alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def train(run: Path, flags: Mapping[str, object]) -> None:
    """Train a network, and add the CPU seconds of the process to a file beside its run.

    A run that was stopped continues with the settings that it was started with, whatever the defaults are by now.
    """
    flags = {**flags, "threads": 1, "device": "cpu"}
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    words = [] if (run / "config.toml").is_file() else words
    command = [sys.executable, "-m", "steadynet", "train", "--resume", "--out", str(run), *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    clock = _clock(run)
    before = float(clock.read_text()) if clock.is_file() else 0.0
    clock.write_text(str(before + usage.ru_utime + usage.ru_stime))
    if status:
        raise SystemExit(f"the training of {run} ended with status {status}")


def cpu_minutes(run: Path) -> float:
    """The CPU minutes that the training of a run took."""
    return float(_clock(run).read_text()) / 60


def _clock(run: Path) -> Path:
    return run.with_suffix(".seconds")
