"""Worker processes on this machine, its cores and GPUs divided among them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from steadynet.errors import UserError
from steadynet.experiments.engines.base import Engine, Pool
from steadynet.experiments.tasks import Event, Task
from steadynet.plugins import setting

PATIENCE = 0.5  # seconds to wait for news
TO_END = 30.0  # seconds a worker may take to end its batch and save what it is at
START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


@dataclass(frozen=True, kw_only=True)
class Local(Engine):
    """Processes that take the next task as soon as they are free; of those that use a GPU, one a GPU at a time."""

    name = "local"
    summary = "worker processes on this machine, its cores divided among them"

    workers: int | None = setting(None, "worker processes; a core each unless given")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers is not None and self.workers < 1:
            raise UserError(f"workers = {self.workers} must be 1 or more")

    def open(self, root: Path, tasks: Sequence[Task]) -> LocalPool:
        """As many workers as asked for, but no more than tasks."""
        import torch

        cores = available_cores()
        workers = self.workers or cores
        threads = threads_each(cores, workers, torch.get_num_threads())
        return LocalPool(root, min(workers, len(tasks)), threads, torch.cuda.device_count())


def threads_each(cores: int, workers: int, most: int) -> int:
    """A worker's share of the cores, but no more than a process is to have (OMP_NUM_THREADS).

    >>> threads_each(8, 2, most=8), threads_each(2, 4, most=2), threads_each(8, 2, most=1)
    (4, 1, 1)
    """
    return max(1, min(cores // workers, most))


def uses_gpu(task: Task) -> bool:
    """Whether a task computes on a GPU where there is one: it asks for one, or trains and nobody said where.

    >>> [uses_gpu(Task("", "train", {"settings": settings})) for settings in ({}, {"device": "cpu"})]
    [True, False]
    """
    return task.gpus > 0 or task.spec.get("settings", {"device": "cpu"}).get("device", "auto") in ("auto", "cuda")


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalPool(Pool):
    """Workers, each with a pipe for tasks and news; they end when this process does, however it does."""

    def __init__(self, root: Path, workers: int, threads: int, gpus: int = 0) -> None:
        self._processes: Any = multiprocessing.get_context(START)
        if START == "forkserver":  # imports once what every worker needs
            self._processes.set_forkserver_preload(["steadynet.experiments.jobs", "torch._dynamo"])
        self._root, self._threads, self._gpus = root, threads, range(gpus)
        self._workers = [self._start() for _ in range(workers)]

    def _start(self) -> _Worker:
        ours, theirs = self._processes.Pipe()
        process = self._processes.Process(target=_work, args=(theirs, self._root, self._threads), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def has_room(self) -> bool:
        """Whether a worker is idle."""
        return any(worker.task is None for worker in self._workers)

    def can_take(self, task: Task) -> bool:
        """Whether a GPU is idle, if there are any and the task uses one."""
        return not self._gpus or not uses_gpu(task) or bool(self._idle_gpus())

    def _idle_gpus(self) -> list[int]:
        busy = {worker.gpu for worker in self._workers if worker.task is not None}
        return [gpu for gpu in self._gpus if gpu not in busy]

    def submit(self, task: Task) -> None:
        """To an idle worker; one that died idle is replaced."""
        gpu = self._idle_gpus()[0] if self._gpus and uses_gpu(task) else None
        place = next(place for place, worker in enumerate(self._workers) if worker.task is None)
        try:
            self._workers[place].pipe.send((task, gpu))
        except OSError:
            self._workers[place] = self._start()
            self._workers[place].pipe.send((task, gpu))
        self._workers[place].task, self._workers[place].gpu = task.name, gpu

    def events(self) -> Iterable[Event]:
        """The news of all workers; those that died are replaced."""
        busy = {worker.pipe: place for place, worker in enumerate(self._workers) if worker.task is not None}
        for pipe in wait(list(busy), timeout=PATIENCE):
            assert isinstance(pipe, Connection)
            yield self._news(busy[pipe], pipe)

    def _news(self, place: int, pipe: Connection) -> Event:
        worker = self._workers[place]
        assert worker.task is not None
        try:
            event: Event = pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            code = worker.process.exitcode
            self._workers[place] = self._start()
            return Event(worker.task, "failed", note=f"its worker died (exit code {code})", lost=True)
        if event.state != "running":
            worker.task = None
        return event

    def close(self) -> None:
        """Ask, wait, kill."""
        for worker in self._workers:
            with suppress(OSError):
                worker.pipe.send(None)
            worker.process.terminate()  # one that trains saves first
        deadline = time.monotonic() + TO_END
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    task: str | None = None
    gpu: int | None = None


def _work(pipe: Connection, root: Path, threads: int) -> None:
    """A worker: task after task, until there are no more or the process that gives them is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    from steadynet.experiments.jobs import executed

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the process that started us
    torch.set_num_threads(threads)
    with suppress(EOFError, OSError):
        while (message := pipe.recv()) is not None:
            task, gpu = message
            if gpu is not None:
                torch.cuda.set_device(gpu)
            pipe.send(executed(task, root, pipe.send))


def _end_with_parent() -> None:
    """End as soon as the process that gives tasks is gone, as after kill -9, however early in our life that was."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
