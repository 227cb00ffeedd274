"""The engine ``local``: a GPU has one task at a time while others continue; a Ctrl-C in a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import pytest

from steadynet.experiments.engines.base import Engine, Pool
from steadynet.experiments.engines.local import LocalPool, _Worker
from steadynet.experiments.tasks import Event, Task, TrainJob, VerifyJob
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import load_tensors

TRAININGS = [Task(f"training {number}", TrainJob("run")) for number in range(4)]
ON_A_CPU = Task("training on a CPU", TrainJob("run", {"device": "cpu"}))
VERIFY = VerifyJob("run", "digits", "shard", 0.1, (0,), "branch_and_bound")
PROOFS = Task("proofs", VERIFY)
PROOFS_ON_A_GPU = Task("proofs on a GPU", replace(VERIFY, device="auto"), gpus=0.5)


class Sent(list):
    send = list.append


def pool_of(workers, gpus):
    """A pool whose workers only record what they are sent."""
    pool = object.__new__(LocalPool)
    pool._gpus, pool._workers = range(gpus), [_Worker(None, Sent()) for _ in range(workers)]
    return pool


def test_a_gpu_has_one_task_at_a_time():
    pool = pool_of(workers=5, gpus=2)
    for task in TRAININGS[:2]:
        assert pool.can_take(task)
        pool.submit(task)
    assert [pool.can_take(task) for task in (TRAININGS[2], PROOFS_ON_A_GPU, PROOFS, ON_A_CPU)] == [
        False,
        False,
        True,
        True,
    ]
    pool.submit(PROOFS)
    pool._workers[1].task = None  # it has ended
    assert pool.can_take(PROOFS_ON_A_GPU)
    pool.submit(PROOFS_ON_A_GPU)
    assert [worker.pipe for worker in pool._workers] == [
        [(TRAININGS[0], 0)],
        [(TRAININGS[1], 1), (PROOFS_ON_A_GPU, 1)],
        [(PROOFS, None)],
        [],
        [],
    ]


def test_without_a_gpu_only_workers_count():
    pool = pool_of(workers=3, gpus=0)
    for task in TRAININGS[:3]:
        assert pool.has_room()
        assert pool.can_take(task)
        pool.submit(task)
    assert not pool.has_room()
    assert [worker.gpu for worker in pool._workers] == [None] * 3


class OneAtATime(Pool):
    """Takes one training at a time and any number of other tasks, which are all done at the next call of ``events``."""

    def __init__(self):
        self.running, self.together = [], []

    def has_room(self):
        return True

    def can_take(self, task):
        return task.kind != "train" or all(other.kind != "train" for other in self.running)

    def submit(self, task):
        self.running.append(task)

    def events(self):
        self.together.append([task.name for task in self.running])
        ended, self.running = self.running, []
        return [Event(task.name, "done") for task in ended]

    def close(self):
        pass


@dataclass(frozen=True, kw_only=True)
class Planned(Engine):
    name, summary = "planned", "for this test"
    pool: OneAtATime

    def open(self, root, tasks):
        return self.pool


def test_a_task_that_cannot_be_taken_lets_others_pass(tmp_path):
    pool = OneAtATime()
    Planned(pool=pool).run(tmp_path, [*TRAININGS[:2], PROOFS], lambda event: None)
    assert pool.together == [["training 0", "proofs"], ["training 1"]]


GRID = """
name = "long"
[training]
data = "digits"
eps = 0.1
epochs = 1
batch_size = 1
[verification]
per_class = 1
[models.M1]
[methods.natural]
[methods.madry]
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="asks for a Ctrl-C as terminals send it")
def test_a_ctrl_c_in_a_terminal_saves_every_training_in_the_middle_of_its_epoch(tmp_path):
    (tmp_path / "long.toml").write_text(GRID)
    words = [sys.executable, "-m", "steadynet", "reproduce", "long.toml", "--out", "out", "--workers", "2"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(words, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
    status = tmp_path / "out" / "status.json"

    def under_way():
        tasks = json.loads(status.read_text())["tasks"].values() if status.is_file() else []
        return sum(task.get("done", 0) > 20 for task in tasks)

    while under_way() < 2:
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    assert process.wait() == 130
    said = (tmp_path / "log").read_text()
    assert "stopped: everything done is saved" in said
    assert "Traceback" not in said
    runs = list((tmp_path / "out" / "runs").iterdir())
    assert len(runs) == 2
    for run in runs:
        assert load_tensors(RunDirectory(run).checkpoint)[1]["position"]["batch"] > 20
