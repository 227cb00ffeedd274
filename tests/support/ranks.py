"""One training over several processes, for the tests: by ``torchrun`` itself, or by what it says to each, sooner.

What the processes say is printed, too: pytest shows it beside a failure.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import torch

from runs import command_line, start
from steadynet.training import loop as training
from steadynet.training.distributed import torchrun_env
from steadynet.verification.processes import MARK, marked_processes

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "steadynet"]


class Torchrun:
    """``torchrun --nproc_per_node 2 -m steadynet …``, all it says in a file; nothing of it outlives the block."""

    def __init__(self, arguments: list[str], output: Path) -> None:
        self.mark, self.output = uuid.uuid4().hex, output
        environment = {**os.environ, "OMP_NUM_THREADS": "1", MARK: self.mark}
        with output.open("w") as file:
            self.process = subprocess.Popen([*TORCHRUN, *arguments], stdout=file, stderr=file, env=environment)

    def __enter__(self) -> Torchrun:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        print(self.output.read_text())

    def finish(self) -> int:
        return self.process.wait(240)

    def kill(self) -> None:
        """``kill -9`` of torchrun and all that it started."""
        for process in marked_processes(self.mark):
            os.kill(process, signal.SIGKILL)
        self.process.wait()

    def said(self) -> list[str]:
        """The lines that are ours."""
        return [line for line in self.output.read_text().splitlines() if line.startswith("steadynet:")]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def as_rank(number: int, count: int, port: int, target, *arguments) -> None:
    """A process as ``torchrun`` starts it; the server that forks it has imported torch already."""
    facts = {"RANK": number, "WORLD_SIZE": count, "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": count}
    facts |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in facts.items()})
    torchrun_env.HEAD_START = 0.5  # no torchrun is there to end this process meanwhile
    target(*arguments)


def finish_ranks(
    arguments: list[str], output: Path, count: int = 2, first=command_line, others=command_line, start_first=start
) -> list[int | None]:
    """Run the processes of one training and return their exit codes; process n prints into ``output-n``."""
    port = free_port()
    processes = [
        (start if number else start_first)(
            as_rank, number, count, port, others if number else first, arguments, Path(f"{output}-{number}")
        )
        for number in range(count)
    ]
    for process in processes:
        process.join(240)
        print(f"exit code {process.exitcode}")
    for number in range(count):
        print(Path(f"{output}-{number}").read_text())
    return [process.exitcode for process in processes]


def killed_in_step(arguments: list[str], output: Path, number: int = 2) -> None:
    """``steadynet``, killed by itself at the beginning of a step; the first step is number 1."""
    original, steps = training.differentiate, iter(range(number - 1))

    def step(*given):
        if next(steps, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        original(*given)

    training.differentiate = step
    command_line(arguments, output)


def with_other_weights(arguments: list[str], output: Path) -> None:
    """``steadynet`` on a machine that computes something else."""
    original = training.descend

    def step(state, *given):
        original(state, *given)
        with torch.no_grad():
            next(state.network.parameters()).view(-1)[0] += 1e-6

    training.descend = step
    command_line(arguments, output)


def start_afresh(target, *arguments) -> multiprocessing.process.BaseProcess:
    """A process that has imported nothing yet."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    return process


def naming_threads(arguments: list[str], output: Path) -> None:
    """``steadynet``; at its end it names the threads that are left."""
    assert "torch._dynamo" not in sys.modules  # optimizers import it when they are made
    try:
        command_line(arguments, output)
    finally:
        print("threads:", *sorted(name.read_text().strip() for name in Path("/proc/self/task").glob("*/comm")))
