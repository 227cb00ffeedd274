"""What engines run: tasks that know what they need, and the events that tell how they are getting on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["waiting", "running", "done", "failed", "blocked"]


@dataclass(frozen=True)
class Task:
    """One piece of work, plain data all through: it can be sent to another process or another machine.

    ``spec`` is what ``jobs.execute`` needs to do it. Paths are relative to the experiment's directory: the task finds
    the files below ``reads``, and leaves everything it makes below ``writes``. Done twice, it does nothing the second
    time; killed in the middle, it goes on. Where no file system is shared, an engine carries ``reads`` there and
    ``writes`` back.
    """

    name: str
    kind: Literal["train", "tune", "evaluate", "verify"]
    spec: dict[str, Any]
    needs: tuple[str, ...] = ()  # names of tasks that must be done before
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    cpus: int = 1
    gpus: float = 0
    label: str = ""  # for people; ``name`` is for files
    group: str = ""  # tasks of one kind and group take about as long


@dataclass(frozen=True)
class Event:
    """What happened to a task: it runs, it is so far, it is done, it failed, or what it needs failed (``blocked``)."""

    task: str
    state: State
    done: int = 0  # of ``total`` batches, images or properties
    total: int = 0
    note: str = ""  # what it is at, or why it failed
    result: dict[str, Any] = field(default_factory=dict)
    lost: bool = False  # its worker died, which says nothing about the task: it is tried again
