"""The engine ``ray``: tasks on the nodes of a Ray cluster, or on a cluster that is started on this machine."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadynet.errors import UserError, one_line
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.engines.base import Engine, Pool
from steadynet.experiments.engines.file_transfer import apply_changes, read_files
from steadynet.experiments.engines.local import available_cores
from steadynet.experiments.engines.ray_node import Attempt, AttemptResult, Mailbox, Message, run_attempt
from steadynet.experiments.tasks import Event, Task
from steadynet.files import disk_errors, write_text
from steadynet.plugins import setting
from steadynet.training.idle_threads import let_threads_sleep

PATIENCE = 0.3  # seconds to wait for events
TO_ANSWER = 10.0  # seconds that the mailbox or a cluster may take to answer
TO_END = 5.0  # seconds that a task may take to save its state
OBJECT_STORE = 100 * 2**20  # bytes, for a cluster that is started here, where no files are copied
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # Ray prints the log of a node that dies, also without ``log_to_driver``
}


@dataclass(frozen=True, kw_only=True)
class Ray(Engine):
    """Ray tasks with the CPUs and GPUs that they ask for. Files are copied to nodes that share no file system."""

    name = "ray"
    summary = "tasks on the nodes of a Ray cluster"

    address: str | None = setting(None, "the Ray cluster, auto or HOST:PORT (default: start one on this machine)")
    autoscaling: bool = setting(
        False, "the Ray cluster grows on demand: queue all tasks, also those that no node can run yet"
    )

    def open(self, root: Path, tasks: Sequence[Task]) -> RayPool:
        """Connect to the cluster, and check that each task has a node that can run it."""
        ray = import_ray()
        with connect(ray, self.address) as connection:
            if not self.autoscaling:
                check_demands([node["Resources"] for node in ray.nodes() if node["Alive"]], tasks)
            return RayPool(ray, root, self.autoscaling, connection.pop_all())


def import_ray() -> Any:
    """Import Ray, with a quiet configuration unless the user has chosen another.

    Raises:
        UserError: Ray is not installed.
    """
    let_threads_sleep()  # in the workers of a cluster that is started here
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with _without_warnings():
            import ray
    except ImportError as error:
        raise UserError("the engine ray needs Ray: pip install steadynet[ray]") from error
    return ray


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress Ray's warnings about changes in its future versions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def connect(ray: Any, address: str | None) -> ExitStack:
    """Connect this process to a cluster.

    Args:
        ray: The module.
        address: ``auto`` or ``HOST:PORT``; None starts a cluster on this machine.

    Returns:
        The connection, which ends when it is closed. If the process was connected before, that connection is used and
        left open.

    Raises:
        UserError: There is no such cluster.
    """
    connection = ExitStack()
    if ray.is_initialized():
        return connection
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {"num_cpus": available_cores(), "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    elif address != "auto":
        _check_that_it_listens(address)
    try:
        with _without_warnings():
            ray.init(address=address or "local", **options)
    except (OSError, RuntimeError, ValueError) as error:
        what = f"connect to a Ray cluster at {address}" if address else "start Ray"
        hint = "; start one with: ray start --head" if address == "auto" else ""
        raise UserError(f"cannot {what}: {one_line(error)}{hint}") from error
    connection.callback(ray.shutdown)
    return connection


def _check_that_it_listens(address: str) -> None:
    """Refuse an address where nobody answers. Ray itself would try for minutes, then end the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"address = '{address}' must be auto or HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {address}: {one_line(error)}") from error


def check_demands(nodes: Sequence[Mapping[str, float]], tasks: Sequence[Task]) -> None:
    """Refuse a task that no node can ever run. Ray would wait for one forever.

    >>> from steadynet.experiments.tasks import TrainJob
    >>> check_demands([{"CPU": 8}, {"CPU": 2, "GPU": 1}], [Task("train", TrainJob("run"), cpus=2, gpus=0.5)])
    """
    for task in tasks:
        if not any(task.cpus <= node.get("CPU", 0) and task.gpus <= node.get("GPU", 0) for node in nodes):
            there = "; ".join(f"{node.get('CPU', 0):g} and {node.get('GPU', 0):g}" for node in nodes)
            raise UserError(
                f"{task.name} asks for {task.cpus} CPUs and {task.gpus:g} GPUs, but the nodes have {there}: "
                "change [resources] of the grid, or say --autoscaling if nodes will be added"
            )


def has_room(capacity: Mapping[str, float], tasks: Iterable[Task]) -> bool:
    """Return whether these tasks leave a CPU idle. A task that waits for a GPU uses none.

    >>> from steadynet.experiments.tasks import TrainJob
    >>> on_gpu, plain = Task("a", TrainJob("run"), gpus=1), Task("b", TrainJob("run"))
    >>> has_room({"CPU": 2}, [plain]), has_room({"CPU": 2}, [plain, plain]), has_room({"CPU": 2}, [on_gpu] * 9)
    (True, False, True)
    """
    cpus, gpus = capacity.get("CPU", 0.0), capacity.get("GPU", 0.0)
    for task in tasks:
        if task.cpus <= cpus and task.gpus <= gpus:
            cpus, gpus = cpus - task.cpus, gpus - task.gpus
    return cpus >= 1


class RayPool(Pool):
    """The running attempts, by the Ray reference of their results.

    Ray itself retries nothing. The schedule does, since it counts the attempts and reports them.
    """

    def __init__(self, ray: Any, root: Path, autoscaling: bool, connection: ExitStack) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ray, self._root, self._autoscaling, self._connection = ray, root, autoscaling, connection
        self._leases = ExperimentDirectory(Path(os.path.abspath(root))).leases
        shutil.rmtree(self._leases, ignore_errors=True)  # attempts that a killed driver has left are given up
        with disk_errors(self._leases):
            self._leases.mkdir(parents=True)
        # a soft strategy might place the mailbox on a node that dies before this one
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        with _without_warnings():
            self._run_attempt = ray.remote(run_attempt)
            mailbox = ray.remote(Mailbox).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here)
            self._mailbox = mailbox.remote()
        self._running: dict[Any, Attempt] = {}
        self._copies_files = False  # until a node turns out not to share our file system
        self._capacity: dict[str, float] = ray.cluster_resources()

    def has_room(self) -> bool:
        """Return whether a CPU of the cluster is idle. Ray's own queue is kept short, so that progress is true."""
        running = [attempt.task for attempt in self._running.values()]
        return not running or self._autoscaling or has_room(self._capacity, running)

    def submit(self, task: Task) -> None:
        """Send an attempt with a lease, and with its files if a node is known not to share them."""
        name = uuid.uuid4().hex
        lease = self._leases / name
        write_text(lease, task.name)
        attempt = Attempt(name, task, str(self._root), str(self._leases.parent), str(lease))
        inputs: tuple[Any, ...] = ()  # Ray fetches a reference inside a tuple only when it is used
        if self._copies_files:
            inputs = (self._ray.put(read_files(self._root, (*task.reads, *task.writes))),)
        with _without_warnings():
            remote = self._run_attempt.options(name=task.name, num_cpus=task.cpus, num_gpus=task.gpus, max_retries=0)
            self._running[remote.remote(attempt, inputs, self._mailbox)] = attempt

    def events(self) -> Iterable[Event]:
        """Return the events in the mailbox, then those of attempts that have ended."""
        if not self._running:
            time.sleep(PATIENCE)
            return
        ended, _ = self._ray.wait(list(self._running), timeout=PATIENCE)
        yield from self._messages()
        for reference in ended:
            task = self._running[reference].task
            event = self._end(reference)
            if event is None:
                self._copies_files = True
                self.submit(task)
            else:
                yield event
        self._capacity = self._ray.cluster_resources()

    def _messages(self) -> Iterator[Event]:
        current = {attempt.id for attempt in self._running.values()}
        messages: list[Message] = []
        with suppress(self._ray.exceptions.RayError):  # without messages the tasks still continue
            messages = self._ray.get(self._mailbox.take.remote(), timeout=TO_ANSWER)
        for message in messages:
            if message.attempt in current:
                apply_changes(self._root, message.changes)
                yield message.event

    def _end(self, reference: Any) -> Event | None:
        """Copy the files of an ended attempt back; return its last event, or None if it needs files to start."""
        attempt = self._running.pop(reference)
        Path(attempt.lease).unlink(missing_ok=True)
        name = attempt.task.name
        try:
            result: AttemptResult = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # a failure outside of the task, such as a missing package
            return Event(name, "failed", note=f"on its node: {one_line(error.cause or error)}")
        except self._ray.exceptions.RayError as error:
            return Event(name, "failed", note=f"its worker died ({type(error).__name__})", lost=True)
        apply_changes(self._root, result.changes)
        return result.event

    def close(self) -> None:
        """Cancel all attempts, wait for them, and kill those that do not end. What they have saved is kept."""
        try:
            if self._running:
                self._cancel(list(self._running))
        finally:
            shutil.rmtree(self._leases, ignore_errors=True)
            self._ray.kill(self._mailbox)
            self._connection.close()

    def _cancel(self, references: list[Any]) -> None:
        for reference in references:
            self._ray.cancel(reference)
        ended, late = self._ray.wait(references, num_returns=len(references), timeout=TO_END)
        for reference in late:
            self._ray.cancel(reference, force=True)
        for reference in ended:
            self._end(reference)
