"""How a grid is getting on, for those who run it and for those who ask later: ``status.json``, rewritten as it goes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from steadynet.errors import UserError
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.lock import is_locked
from steadynet.experiments.plan import Plan
from steadynet.experiments.tasks import Event
from steadynet.files import write_json

WRITE_EVERY = 1.0  # seconds


class Status:
    """What every task of a grid is at."""

    def __init__(self, root: ExperimentDirectory, name: str, plan: Plan) -> None:
        self.path = root.status
        self._written = 0.0
        now, before = time.time(), _earlier(self.path)
        self.content: dict[str, Any] = {"name": name, "started": now, "updated": now, "tasks": {}}
        for task in plan.tasks.values():
            state = "done" if task.name in plan.done else "waiting"
            self.content["tasks"][task.name] = {"kind": task.kind, "group": task.group, "state": state}
            seconds = before.get(task.name, {}).get("seconds")
            if state == "done" and seconds is not None:
                self.content["tasks"][task.name]["seconds"] = seconds
        self.write()

    def take(self, event: Event) -> None:
        """Note an event."""
        task, now = self.content["tasks"][event.task], time.time()
        if event.state == "running" and task["state"] != "running":
            task |= {"started": now}
            task.pop("first_news", None)
        elif event.state in ("done", "failed"):
            task |= {"seconds": round(now - task.get("started", now), 3)}
        task |= {"state": event.state, "note": event.note}
        if event.total:
            if "first_news" not in task or event.done < task["done"]:  # a search trains one network after another
                task["first_news"] = [event.done, now]  # what goes on has much behind it
            task |= {"done": event.done, "total": event.total}
        if event.state != "running" or time.monotonic() - self._written > WRITE_EVERY:
            self.write()

    def write(self) -> None:
        """The file, whole."""
        self.content["updated"] = time.time()
        self._written = time.monotonic()
        write_json(self.path, self.content)

    def failures(self) -> dict[str, str]:
        """Why each failed task failed."""
        return failures(self.content)


def _earlier(path: Path) -> dict[str, dict[str, Any]]:
    """The tasks of an earlier call: how long they took tells how long others will take."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["tasks"]
    except (OSError, ValueError, KeyError):
        return {}


def read_status(root: ExperimentDirectory) -> dict[str, Any]:
    """The status of a grid, with whether anybody is at work on it; what was running then is waiting now."""
    path = root.status
    if not path.is_file():
        raise UserError(f"{root.path} holds no experiment (it has no {path.name})")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: run the experiment again") from error
    content["at_work"] = is_locked(root)
    if not content["at_work"]:
        for task in content["tasks"].values():
            task["state"] = "waiting" if task["state"] == "running" else task["state"]
    return content


def failures(content: dict[str, Any]) -> dict[str, str]:
    """Why each failed task failed."""
    return {name: task["note"] for name, task in content["tasks"].items() if task["state"] == "failed"}


def counts(tasks: Iterable[dict[str, Any]]) -> Counter[str]:
    """How many tasks are in each state."""
    return Counter(task["state"] for task in tasks)


class Eta(NamedTuple):
    """How long a grid will take, as far as can be told."""

    seconds: float
    at_least: bool  # of some tasks nothing is known yet: they come on top


def eta(content: dict[str, Any]) -> Eta | None:
    """The time until all is done: a task takes as long as others of its kind and group did, or as any of its kind did.

    None while nothing is known of any task that is left.

    >>> task = {"kind": "train", "group": "M1", "state": "done", "seconds": 10.0}
    >>> tasks = {"a": task, "b": task | {"state": "waiting"}, "c": task | {"state": "waiting", "group": "M3"}}
    >>> eta({"tasks": tasks})
    Eta(seconds=20.0, at_least=False)
    >>> eta({"tasks": tasks | {"d": {"kind": "verify", "group": "M1", "state": "waiting"}}})
    Eta(seconds=20.0, at_least=True)
    """
    tasks = list(content["tasks"].values())
    left = [task for task in tasks if task["state"] in ("waiting", "running")]
    lengths: dict[tuple[str, str | None], list[float]] = {}
    for task in tasks:
        length = task.get("seconds") or _expected(task, content)
        if length:
            lengths.setdefault(_place(task), []).append(length)
            lengths.setdefault((task["kind"], None), []).append(length)
    means = {place: sum(known) / len(known) for place, known in lengths.items()}
    expected = {place: means.get(place) or means.get((place[0], None)) for place in map(_place, left)}
    known = [mean * _left(task) for task in left if (mean := expected[_place(task)]) is not None]
    if left and not known:
        return None
    workers = max(1, sum(task["state"] == "running" for task in tasks))
    return Eta(sum(known) / workers, at_least=len(known) < len(left))


def _place(task: dict[str, Any]) -> tuple[str, str | None]:
    return task["kind"], task.get("group")


def time_left(task: dict[str, Any], content: dict[str, Any]) -> float | None:
    """Seconds until a running task is done, by its speed since it was first heard of; None until that is known.

    >>> task = {"state": "running", "first_news": [0, 1000.0], "done": 8, "total": 20}
    >>> time_left(task, {"updated": 1160.0})  # eight at once after 160 s: twelve more take 240
    240.0
    """
    length = _expected(task, content)
    return None if length is None else length * _left(task)


def _left(task: dict[str, Any]) -> float:
    return 1 - task.get("done", 0) / task["total"] if task["state"] == "running" and task.get("total") else 1.0


def _expected(task: dict[str, Any], content: dict[str, Any]) -> float | None:
    """How long a running task takes as a whole, from how far it has come since it was first heard of.

    >>> task = {"state": "running", "first_news": [30, 1000.0], "done": 50, "total": 100}
    >>> _expected(task, {"updated": 1010.0})
    50.0
    """
    done, since = task.get("first_news", (0, 0.0))
    if task["state"] != "running" or task.get("done", 0) <= done:
        return None
    return max(0.0, content["updated"] - since) * task["total"] / (task["done"] - done)
