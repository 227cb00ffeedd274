"""A grid that is done in seconds, and what tests ask of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from runs import command_line, finish, write_inputs
from steadynet.experiments.engines import local
from steadynet.experiments.table import SECONDS

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
    """The grid's file, with what it is about beside it; some text replaced by other text."""
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
    """``steadynet`` in a process of its own, whose workers are there at once: it has imported all, and one thread."""
    local.START = "fork"
    command_line(arguments, output)


def reproduce(grid: Path | str, out: Path, *words: str) -> tuple[int, str]:
    """The exit code, and everything that was said."""
    code = finish(command_line_with_forks, words_of(grid, out, *words), out.with_suffix(".log"))
    return code, out.with_suffix(".log").read_text()


def words_of(grid: Path | str, out: Path, *words: str) -> list[str]:
    return ["reproduce", str(grid), "--out", str(out), "--workers", "2", *words]


def table(out: Path) -> list[dict]:
    """The table without what depends on how fast the machine is."""
    rows = json.loads((out / "table.json").read_text())
    seconds = tuple(f"{name}{end}" for name in SECONDS for end in ("", "_delta"))
    return [row for row in rows if row["metric"] not in seconds]


def give_to_a_slow_starter(root: Path) -> None:
    """A process with one worker that takes a while to begin, as on a machine with much to do."""
    work = local._work

    def late(*arguments: object) -> None:
        (root / "worker").write_text(str(os.getpid()))
        time.sleep(0.5)
        work(*arguments)

    local.START, local._work = "fork", late
    local.LocalPool(root, workers=1, threads=1)
    time.sleep(60)


def is_running(process: int) -> bool:
    """Whether a process is there, and not only waiting to be buried."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
