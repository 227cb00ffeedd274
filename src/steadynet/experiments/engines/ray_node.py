"""What runs on the nodes of a Ray cluster: one attempt at a task, and the mailbox for news of all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steadynet import __version__
from steadynet.experiments.engines.luggage import Changes, Watch, unpack
from steadynet.experiments.tasks import Event, Task
from steadynet.runs.directory import RunDirectory


@dataclass(frozen=True)
class Attempt:
    """One attempt at a task, as it is sent to a node.

    ``lease`` is a file that the driver made for it. A node that sees it shares the file system; an attempt that sees
    it no more was given up, and ends.
    """

    id: str
    task: Task
    root: str  # the experiment's directory, as the driver calls it
    place: str  # the same, as every node that shares it calls it
    lease: str
    version: str = __version__


@dataclass(frozen=True)
class Reply:
    """How an attempt ended; without an event it has not begun, for it sees no files and none were sent."""

    event: Event | None
    changes: Changes = field(default_factory=Changes)


class Mailbox:
    """Where attempts leave their news, until the driver takes it."""

    def __init__(self) -> None:
        self._mail: list[tuple[str, Event, Changes]] = []

    def put(self, attempt: str, event: Event, changes: Changes) -> None:
        """News of an attempt, with the files that it changed where they must travel."""
        self._mail.append((attempt, event, changes))

    def take(self) -> list[tuple[str, Event, Changes]]:
        """All news since the last time."""
        mail, self._mail = self._mail, []
        return mail


def perform(attempt: Attempt, luggage: tuple[Any, ...], mailbox: Any) -> Reply:
    """Do a task, in the experiment's directory if it is here, else in a folder of its own with the files sent."""
    if attempt.version != __version__:
        note = f"a node has steadynet {__version__}, but {attempt.version} runs the experiment"
        return Reply(Event(attempt.task.name, "failed", note=note))
    lease = Path(attempt.lease)
    if lease.is_file():
        return _shared(attempt, lease, mailbox)
    if not luggage:
        return Reply(None)
    with tempfile.TemporaryDirectory(prefix="steadynet-") as folder:
        return _travelled(attempt, luggage[0], Path(folder), mailbox)


def _shared(attempt: Attempt, lease: Path, mailbox: Any) -> Reply:
    def tell(event: Event) -> None:
        if not lease.is_file():
            raise SystemExit("given up")  # another attempt may be at work on the same files
        mailbox.put.remote(attempt.id, event, Changes())

    return Reply(_executed(attempt.task, Path(attempt.place), tell))


def _travelled(attempt: Attempt, files: Any, folder: Path, mailbox: Any) -> Reply:
    """What changes is sent with the news, too: if this node dies, the next attempt goes on from there."""
    import ray

    unpack(folder, ray.get(files))
    watch = Watch(folder, attempt.task.writes)

    def tell(event: Event) -> None:
        mailbox.put.remote(attempt.id, event, _at_home(watch.news(), folder, attempt.root))

    event = _executed(attempt.task, folder, tell)
    return Reply(event, _at_home(watch.everything(), folder, attempt.root))


def _executed(task: Task, root: Path, tell: Callable[[Event], None]) -> Event:
    import torch

    from steadynet.experiments.jobs import executed

    torch.set_num_threads(task.cpus)
    try:
        return executed(task, root, tell)
    except KeyboardInterrupt:  # cancelled
        return Event(task.name, "failed", note="stopped")


def _at_home(changes: Changes, folder: Path, root: str) -> Changes:
    """Configurations name the experiment's directory, not the folder that stood for it here."""
    config = RunDirectory(folder).config.name
    written = {
        name: content.replace(str(folder).encode(), root.encode()) if Path(name).name == config else content
        for name, content in changes.written.items()
    }
    return replace(changes, written=written)
