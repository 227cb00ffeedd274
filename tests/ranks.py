"""One training over several processes, for the tests: by ``torchrun`` itself, or by what it says to each, sooner."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from runs import command_line, start

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "steadynet"]
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}


def torchrun(arguments: list[str]) -> subprocess.Popen[str]:
    """``torchrun --nproc_per_node 2 -m steadynet …`` in a session of its own."""
    return subprocess.Popen(
        [*TORCHRUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=ALONE,
        text=True,
        start_new_session=True,
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def as_rank(number: int, count: int, port: int, target, *arguments) -> None:
    """A process as ``torchrun`` starts it; the server that forks it has imported torch already."""
    facts = {"RANK": number, "WORLD_SIZE": count, "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": count}
    facts |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in facts.items()})
    target(*arguments)


def start_ranks(arguments: list[str], output: Path, count: int = 2, first=command_line, others=command_line):
    """The processes of one training; what process n says is in ``output-n``."""
    port = free_port()
    return [
        start(as_rank, number, count, port, others if number else first, arguments, Path(f"{output}-{number}"))
        for number in range(count)
    ]


def finish_ranks(arguments: list[str], output: Path, count: int = 2, **how) -> list[int | None]:
    """Their exit codes."""
    processes = start_ranks(arguments, output, count, **how)
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]
