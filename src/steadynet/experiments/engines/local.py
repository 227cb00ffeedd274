"""The engine ``local``: worker processes on this machine, which share its cores and GPUs."""

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
from steadynet.experiments.tasks import Event, Task, TrainJob, TuneJob
from steadynet.plugins import setting
from steadynet.training.idle_threads import let_threads_sleep

PATIENCE = 0.5  # seconds to wait for events
TO_END = 30.0  # seconds that a worker may take to finish its batch and to save its state
START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


@dataclass(frozen=True, kw_only=True)
class Local(Engine):
    """Worker processes. Each takes the next task as soon as it is idle; a GPU has one task at a time."""

    name = "local"
    summary = "worker processes on this machine, which share its cores"

    workers: int | None = setting(None, "worker processes (default: one per core)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers is not None and self.workers < 1:
            raise UserError(f"workers = {self.workers} must be 1 or more")

    def open(self, root: Path, tasks: Sequence[Task]) -> LocalPool:
        """Start as many workers as asked for, but no more than there are tasks."""
        import torch

        cores = available_cores()
        workers = self.workers or cores
        threads = threads_per_worker(cores, workers, torch.get_num_threads())
        return LocalPool(root, min(workers, len(tasks)), threads, torch.cuda.device_count())


def threads_per_worker(cores: int, workers: int, limit: int) -> int:
    """Divide the cores among the workers; ``limit`` is the most that a process may use (OMP_NUM_THREADS).

    >>> threads_per_worker(8, 2, limit=8), threads_per_worker(2, 4, limit=2), threads_per_worker(8, 2, limit=1)
    (4, 1, 1)
    """
    return max(1, min(cores // workers, limit))


def uses_gpu(task: Task) -> bool:
    """Return whether a task computes on a GPU where there is one: it asks for one, or it trains on any device.

    >>> [uses_gpu(Task("", TrainJob("run", settings))) for settings in ({}, {"device": "cpu"})]
    [True, False]
    """
    if isinstance(task.job, TrainJob | TuneJob) and task.job.settings.get("device", "auto") in ("auto", "cuda"):
        return True
    return task.gpus > 0


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalPool(Pool):
    """Worker processes with one pipe each for tasks and events. They end when this process ends, even if it is killed.

    Args:
        root: The experiment's directory.
        workers: The number of processes.
        threads: The number of threads of each.
        gpus: The number of GPUs that they share.
    """

    def __init__(self, root: Path, workers: int, threads: int, gpus: int = 0) -> None:
        let_threads_sleep()  # in the workers: they import PyTorch when they start
        self._processes: Any = multiprocessing.get_context(START)
        if START == "forkserver":
            # The server imports these once for all workers. torch.optim needs the second; a missing module is skipped.
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
        """Return whether a worker is idle."""
        return any(worker.task is None for worker in self._workers)

    def can_take(self, task: Task) -> bool:
        """Return whether a GPU is idle, if there are any and the task uses one."""
        return not self._gpus or not uses_gpu(task) or bool(self._idle_gpus())

    def _idle_gpus(self) -> list[int]:
        busy = {worker.gpu for worker in self._workers if worker.task is not None}
        return [gpu for gpu in self._gpus if gpu not in busy]

    def submit(self, task: Task) -> None:
        """Send a task to an idle worker. If that worker has died, it is replaced."""
        gpu = self._idle_gpus()[0] if self._gpus and uses_gpu(task) else None
        place = next(place for place, worker in enumerate(self._workers) if worker.task is None)
        try:
            self._workers[place].pipe.send((task, gpu))
        except OSError:
            self._workers[place] = self._start()
            self._workers[place].pipe.send((task, gpu))
        self._workers[place].task, self._workers[place].gpu = task.name, gpu

    def events(self) -> Iterable[Event]:
        """Return the events of all workers; a worker that died is replaced."""
        busy = {worker.pipe: place for place, worker in enumerate(self._workers) if worker.task is not None}
        for pipe in wait(list(busy), timeout=PATIENCE):
            assert isinstance(pipe, Connection)
            yield self._receive(busy[pipe], pipe)

    def _receive(self, place: int, pipe: Connection) -> Event:
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
        """Ask all workers to end, wait for them, and kill those that do not."""
        for worker in self._workers:
            with suppress(OSError):
                worker.pipe.send(None)
            worker.process.terminate()  # a worker that trains saves its state first
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
    """Run tasks in a worker process, until there are no more or the process that sends them has ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    from steadynet.experiments.jobs import run_task

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the process that started this one
    torch.set_num_threads(threads)
    with suppress(EOFError, OSError):
        while (message := pipe.recv()) is not None:
            task, gpu = message
            if gpu is not None:
                torch.cuda.set_device(gpu)
            pipe.send(run_task(task, root, pipe.send))


def _end_with_parent() -> None:
    """End this process as soon as its parent has ended, also by kill -9 and before the first task."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
