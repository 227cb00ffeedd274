"""What runs on the nodes of a Ray cluster: one attempt at a task, and the mailbox that collects the events."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steadynet import __version__
from steadynet.experiments.engines.file_transfer import ChangeTracker, FileChanges, apply_changes
from steadynet.experiments.tasks import Event, Task
from steadynet.runs.directory import RunDirectory


@dataclass(frozen=True)
class Attempt:
    """One attempt at a task, as the driver sends it to a node.

    ``lease`` is a file that the driver created for this attempt. A node that sees the file shares the driver's file
    system. When the file is gone, the driver has given up the attempt, which then ends.
    """

    id: str
    task: Task
    root: str  # the experiment's directory, as the user wrote it
    shared_root: str  # its absolute path, which is the same on every node that shares the file system
    lease: str
    version: str = __version__


@dataclass(frozen=True)
class AttemptResult:
    """How an attempt ended. ``event`` is None if it did not start: the node sees no files, and none were sent."""

    event: Event | None
    changes: FileChanges = field(default_factory=FileChanges)


@dataclass(frozen=True)
class Message:
    """An event of an attempt, with the files that changed if they must be copied."""

    attempt: str
    event: Event
    changes: FileChanges


class Mailbox:
    """An actor that collects the messages of all attempts for the driver."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def put(self, message: Message) -> None:
        """Add a message."""
        self._messages.append(message)

    def take(self) -> list[Message]:
        """Remove and return all messages."""
        messages, self._messages = self._messages, []
        return messages


def run_attempt(attempt: Attempt, inputs: tuple[Any, ...], mailbox: Any) -> AttemptResult:
    """Run a task on a node.

    Args:
        attempt: The task and where its experiment is.
        inputs: A Ray reference to the task's input files, or nothing. With it the task can run in a temporary folder.
        mailbox: The handle of the mailbox for events.

    Returns:
        How the attempt ended, and the files that must be copied back.
    """
    if attempt.version != __version__:
        note = f"a node has steadynet {__version__}, but {attempt.version} runs the experiment"
        return AttemptResult(Event(attempt.task.name, "failed", note=note))
    lease = Path(attempt.lease)
    if lease.is_file():
        return _run_in_shared_folder(attempt, lease, mailbox)
    if not inputs:
        return AttemptResult(None)
    with tempfile.TemporaryDirectory(prefix="steadynet-") as folder:
        return _run_on_copies(attempt, inputs[0], Path(folder), mailbox)


def _run_in_shared_folder(attempt: Attempt, lease: Path, mailbox: Any) -> AttemptResult:
    def on_event(event: Event) -> None:
        if not lease.is_file():
            raise SystemExit("given up")  # another attempt may be writing the same files
        mailbox.put.remote(Message(attempt.id, event, FileChanges()))

    return AttemptResult(_run(attempt.task, Path(attempt.shared_root), on_event))


def _run_on_copies(attempt: Attempt, inputs: Any, folder: Path, mailbox: Any) -> AttemptResult:
    """Run a task on copies of its files. Changes are sent with each event: if this node dies, the next continues."""
    import ray

    apply_changes(folder, ray.get(inputs))
    tracker = ChangeTracker(folder, attempt.task.writes)

    def on_event(event: Event) -> None:
        changes = _with_original_paths(tracker.since_last_call(), folder, attempt.root)
        mailbox.put.remote(Message(attempt.id, event, changes))

    event = _run(attempt.task, folder, on_event)
    return AttemptResult(event, _with_original_paths(tracker.since_start(), folder, attempt.root))


def _run(task: Task, root: Path, on_event: Callable[[Event], None]) -> Event:
    import torch

    from steadynet.experiments.jobs import run_task

    torch.set_num_threads(task.cpus)
    try:
        return run_task(task, root, on_event)
    except KeyboardInterrupt:  # the driver has cancelled the task
        return Event(task.name, "failed", note="stopped")


def _with_original_paths(changes: FileChanges, folder: Path, root: str) -> FileChanges:
    """Replace the temporary folder by the experiment's directory in the configurations of runs."""
    config = RunDirectory(folder).config.name
    written = {
        name: content.replace(str(folder).encode(), root.encode()) if Path(name).name == config else content
        for name, content in changes.written.items()
    }
    return replace(changes, written=written)
