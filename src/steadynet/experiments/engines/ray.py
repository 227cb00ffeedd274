"""Tasks on a Ray cluster, or on one started on this machine."""

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
from steadynet.experiments.engines.local import available_cores
from steadynet.experiments.engines.luggage import Changes, packed, unpack
from steadynet.experiments.engines.ray_node import Attempt, Mailbox, Reply, perform
from steadynet.experiments.tasks import Event, Task
from steadynet.files import disk_errors, write_text
from steadynet.plugins import setting

PATIENCE = 0.3  # seconds to wait for news
TO_ANSWER = 10.0  # seconds the mailbox or a cluster may take to answer
TO_END = 5.0  # seconds a task may take to save what it is at
OBJECT_STORE = 100 * 2**20  # bytes, of a cluster started here, where files do not travel


@dataclass(frozen=True, kw_only=True)
class Ray(Engine):
    """Ray tasks with the CPUs and GPUs they ask for; files travel with them where no file system is shared."""

    name = "ray"
    summary = "tasks on the nodes of a Ray cluster"

    address: str | None = setting(None, "the Ray cluster, auto or HOST:PORT; one is started here unless given")
    autoscaling: bool = setting(
        False, "the Ray cluster grows on demand: queue all tasks, even what no node can run yet"
    )

    def open(self, root: Path, tasks: Sequence[Task]) -> RayPool:
        """Connect, and see that every task has a node that can run it."""
        ray = _import_ray()
        with _connected(ray, self.address) as connection:
            if not self.autoscaling:
                check_demands([node["Resources"] for node in ray.nodes() if node["Alive"]], tasks)
            return RayPool(ray, root, self.autoscaling, connection.pop_all())


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with _unwarned():
            import ray
    except ImportError as error:
        raise UserError("the engine ray needs Ray: pip install steadynet[ray]") from error
    return ray


@contextmanager
def _unwarned() -> Iterator[None]:
    """Without Ray's warnings of its own future."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _connected(ray: Any, address: str | None) -> ExitStack:
    """A connection, which ends when the stack is closed; one that this process had already is used, and left."""
    connection = ExitStack()
    if ray.is_initialized():
        return connection
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {"num_cpus": available_cores(), "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    elif address != "auto":
        _check_listens(address)
    try:
        with _unwarned():
            ray.init(address=address or "local", **options)
    except (OSError, RuntimeError, ValueError) as error:
        what = f"connect to a Ray cluster at {address}" if address else "start Ray"
        hint = "; start one with: ray start --head" if address == "auto" else ""
        raise UserError(f"cannot {what}: {one_line(error)}{hint}") from error
    connection.callback(ray.shutdown)
    inside = ray._private.worker  # prints the log of a node that dies, whatever one says
    connection.callback(setattr, inside, "print_to_stdstream", inside.print_to_stdstream)
    inside.print_to_stdstream = lambda *_, **__: None
    return connection


def _check_listens(address: str) -> None:
    """Ray itself tries for minutes, then ends the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"address = '{address}' must be auto or HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {address}: {one_line(error)}") from error


def check_demands(nodes: Sequence[Mapping[str, float]], tasks: Sequence[Task]) -> None:
    """Refuse a task that no node can ever run, for which Ray would wait forever.

    >>> check_demands([{"CPU": 8}, {"CPU": 2, "GPU": 1}], [Task("train", "train", {}, cpus=2, gpus=0.5)])
    """
    for task in tasks:
        if not any(task.cpus <= node.get("CPU", 0) and task.gpus <= node.get("GPU", 0) for node in nodes):
            there = "; ".join(f"{node.get('CPU', 0):g} and {node.get('GPU', 0):g}" for node in nodes)
            raise UserError(
                f"{task.name} asks for {task.cpus} CPUs and {task.gpus:g} GPUs, but the nodes have {there}: "
                "change [resources] of the grid, or say --autoscaling if nodes will be added"
            )


def has_room(capacity: Mapping[str, float], tasks: Iterable[Task]) -> bool:
    """Whether a CPU is left idle by these tasks; one that waits for a GPU takes none.

    >>> asks_gpu, plain = Task("a", "train", {}, gpus=1), Task("b", "verify", {})
    >>> has_room({"CPU": 2}, [plain]), has_room({"CPU": 2}, [plain, plain]), has_room({"CPU": 2}, [asks_gpu] * 9)
    (True, False, True)
    """
    cpus, gpus = capacity.get("CPU", 0.0), capacity.get("GPU", 0.0)
    for task in tasks:
        if task.cpus <= cpus and task.gpus <= gpus:
            cpus, gpus = cpus - task.cpus, gpus - task.gpus
    return cpus >= 1


class RayPool(Pool):
    """Attempts at tasks, by the Ray reference of their reply.

    Ray itself tries nothing again: the schedule does, which counts attempts and tells of them.
    """

    def __init__(self, ray: Any, root: Path, autoscaling: bool, connection: ExitStack) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ray, self._root, self._autoscaling, self._connection = ray, root, autoscaling, connection
        self._leases = ExperimentDirectory(Path(os.path.abspath(root))).leases
        shutil.rmtree(self._leases, ignore_errors=True)  # whoever still works for a killed driver is given up
        with disk_errors(self._leases):
            self._leases.mkdir(parents=True)
        # hard: a soft wish may be granted on a node that dies before this one
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        with _unwarned():
            self._perform = ray.remote(perform)
            mailbox = ray.remote(Mailbox).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here)
            self._mailbox = mailbox.remote()
        self._running: dict[Any, Attempt] = {}
        self._files_travel = False  # until a node turns out not to share ours
        self._capacity: dict[str, float] = ray.cluster_resources()

    def has_room(self) -> bool:
        """Whether a CPU of the cluster, as it is now, is idle; Ray's own queue is kept short, so that bars are true."""
        running = [attempt.task for attempt in self._running.values()]
        return not running or self._autoscaling or has_room(self._capacity, running)

    def submit(self, task: Task) -> None:
        """An attempt, with a lease; with the files, once any node is known not to share them."""
        name = uuid.uuid4().hex
        lease = self._leases / name
        write_text(lease, task.name)
        attempt = Attempt(name, task, str(self._root), str(self._leases.parent), str(lease))
        luggage: tuple[Any, ...] = ()  # inside a tuple, a reference is fetched only by who needs it
        if self._files_travel:
            luggage = (self._ray.put(packed(self._root, (*task.reads, *task.writes))),)
        with _unwarned():
            asked = self._perform.options(name=task.name, num_cpus=task.cpus, num_gpus=task.gpus, max_retries=0)
            self._running[asked.remote(attempt, luggage, self._mailbox)] = attempt

    def events(self) -> Iterable[Event]:
        """The news in the mailbox, then what has ended."""
        if not self._running:
            time.sleep(PATIENCE)
            return
        ended, _ = self._ray.wait(list(self._running), timeout=PATIENCE)
        yield from self._news()
        for reference in ended:
            task = self._running[reference].task
            event = self._end(reference)
            if event is None:
                self._files_travel = True
                self.submit(task)
            else:
                yield event
        self._capacity = self._ray.cluster_resources()

    def _news(self) -> Iterator[Event]:
        current = {attempt.id for attempt in self._running.values()}
        mail: list[tuple[str, Event, Changes]] = []
        with suppress(self._ray.exceptions.RayError):  # bars may stand still, tasks need not
            mail = self._ray.get(self._mailbox.take.remote(), timeout=TO_ANSWER)
        for attempt, event, changes in mail:
            if attempt in current:
                unpack(self._root, changes)
                yield event

    def _end(self, reference: Any) -> Event | None:
        """How an attempt ended, the files that travelled back in their places; None if it needs files to begin."""
        attempt = self._running.pop(reference)
        Path(attempt.lease).unlink(missing_ok=True)
        name = attempt.task.name
        try:
            reply: Reply = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # something outside of the task, as a missing package
            return Event(name, "failed", note=f"on its node: {one_line(error.cause or error)}")
        except self._ray.exceptions.RayError as error:
            return Event(name, "failed", note=f"its worker died ({type(error).__name__})", lost=True)
        unpack(self._root, reply.changes)
        return reply.event

    def close(self) -> None:
        """Ask, wait, kill; what cancelled tasks have saved is kept."""
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
