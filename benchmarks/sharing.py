"""How much faster two workers verify 400 properties than one. Run it alone, on a machine with two cores.

    python benchmarks/sharing.py [--properties 400]

Trains M1 on the embedded digits once; then the same verification by one worker and by two, a core each, from the start
of the command to its table. The aim: two take at most 0.6 of the time of one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRID = """
name = "sharing"
title = "400 properties"
[training]
data = "digits"
eps = 0.1
epochs = 4
lr = 2e-3
schedule = "one-cycle"
[verification]
eps = [0.08]
timeout = 2.0
per_class = {per_class}
[evaluation]
images = 50
pgd_steps = 1
[models.M1]
[methods.nbc]
phases = "nbc"
"""


def run(folder: Path, per_class: int, out: Path, workers: int) -> float:
    """The seconds of one command, on as many cores as workers."""
    cores = sorted(os.sched_getaffinity(0))[:workers]
    grid = folder / f"grid-{per_class}.toml"
    grid.write_text(GRID.format(per_class=per_class))
    command = [sys.executable, "-m", "steadynet", "reproduce", str(grid), "--out", str(out), "--workers", str(workers)]
    begun = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command, check=True, preexec_fn=lambda: os.sched_setaffinity(0, cores), **quiet)
    return time.perf_counter() - begun


def main() -> None:
    """Time both, from copies of one trained network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--properties", type=int, default=400)
    per_class = parser.parse_args().properties // 10
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(folder, 1, folder / "trained", 2)
        seconds = {}
        for workers in (1, 2):
            out = shutil.copytree(folder / "trained", folder / f"by-{workers}")
            seconds[workers] = run(folder, per_class, out, workers)
            print(f"{10 * per_class} properties by {workers} worker(s): {seconds[workers]:.1f} s", flush=True)
        print(f"two take {seconds[2] / seconds[1]:.2f} of the time of one")


if __name__ == "__main__":
    main()
