"""A grid that takes seconds, and helpers to run it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from few_digits import load_few
from runs import command_line, finish, write_inputs
from steadynet.data.digits import Digits
from steadynet.experiments.engines import local
from steadynet.experiments.table import MACHINE_METRICS

GRID = """
name = "small"
title = "A small grid"

[training]
data = "{folder}/small.npz"
eps = 0.1
epochs = 2
batch_size = 32
lr = 0.01

[verification]
eps = [0.05, 0.3]
per_class = 3
timeout = 20.0
shard = 6

[evaluation]
pgd_steps = [3, 5]

[parts]
nbc = {{ steps = 2 }}
madry = {{ steps = 2 }}

[models.tiny]
network = "{folder}/net.py:tiny"

[models.fragile]
network = "{folder}/net.py:fragile"

[methods.natural]

[methods."madry+nbc"]
phases = "madry+nbc:1/2 madry:1/2"
against = "natural"

[methods.tuned]
phases = "nbc"
init = "natural"
drop = [-100, 100]

[scales.quick]
training = {{ epochs = 1 }}
"""


def write_grid(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the grid, its data and its networks; ``changes`` replace some of its text."""
    folder.mkdir(parents=True, exist_ok=True)
    write_inputs(folder)
    text = GRID.format(folder=folder)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def command_line_with_forks(arguments: list[str], output: Path) -> None:
    """Run ``steadynet`` in a process of its own whose workers are forked, so that they import nothing again."""
    local.START = "fork"
    command_line(arguments, output)


def command_line_on_few_digits(arguments: list[str], output: Path) -> None:
    """The same, where ``digits`` has few images."""
    Digits.load = load_few
    command_line_with_forks(arguments, output)


def reproduce(grid: Path | str, out: Path, *words: str, target=command_line_with_forks) -> tuple[int, str]:
    """Run ``steadynet reproduce``; return the exit code and the output."""
    code = finish(target, words_of(grid, out, *words), out.with_suffix(".log"))
    return code, out.with_suffix(".log").read_text()


def words_of(grid: Path | str, out: Path, *words: str) -> list[str]:
    return ["reproduce", str(grid), "--out", str(out), "--workers", "2", *words]


def table(out: Path) -> list[dict]:
    """Read the table, without the metrics that depend on how fast the machine is."""
    rows = json.loads((out / "table.json").read_text())
    seconds = tuple(f"{name}{end}" for name in MACHINE_METRICS for end in ("", "_delta"))
    return [row for row in rows if row["metric"] not in seconds]


def give_to_a_slow_starter(root: Path) -> None:
    """Start one worker that takes a while to begin, as on a busy machine."""
    work = local._work

    def late(*arguments: object) -> None:
        (root / "worker").write_text(str(os.getpid()))
        time.sleep(0.5)
        work(*arguments)

    local.START, local._work = "fork", late
    local.LocalPool(root, workers=1, threads=1)
    time.sleep(60)


def is_running(process: int) -> bool:
    """Return whether a process is running; one that has ended and was not waited for is not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
